"""Kafka, schema registry, catalog, state store, Spark."""
