"""Import of a Kafka Connect sink's dead-letter topic."""
