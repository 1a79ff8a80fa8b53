"""The envelope of Kafka Connect's JsonConverter."""
