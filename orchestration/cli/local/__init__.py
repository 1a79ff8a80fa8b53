"""Commands with local services: dev, demo, broker, generate, certify."""
