"""Publisher of dead letters to a topic, in Kafka Connect's form."""
