"""The `contract:` block."""
