"""Commands for those who come from Kafka Connect."""
