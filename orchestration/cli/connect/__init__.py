"""Commands for who comes from Kafka Connect."""
