"""Clients for topics, offsets and records of Kafka."""
