"""Clients of Kafka, the schema registry, the catalog, the state store and Spark."""
