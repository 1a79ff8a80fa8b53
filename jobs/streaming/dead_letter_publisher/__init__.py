"""Dead letters to a topic, in Kafka Connect's form."""
