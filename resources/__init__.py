"""The deployment, Kafka, catalog and Spark as Dagster resources."""
