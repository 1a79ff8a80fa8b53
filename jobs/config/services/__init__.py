"""Models of the settings' blocks: Kafka, registry, catalog, state, drivers, maintenance."""
