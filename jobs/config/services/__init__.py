"""Blocks of the settings: Kafka, registry, catalog, state, drivers, maintenance."""
