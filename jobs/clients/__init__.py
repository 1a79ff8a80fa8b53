"""Clients of Kafka, schema registry, catalog, state store and Spark."""
