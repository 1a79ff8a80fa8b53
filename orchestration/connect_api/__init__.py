"""Kafka Connect's REST interface over the streams of a deployment."""
