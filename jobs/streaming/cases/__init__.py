"""Cases of a stream: records in, rows and dead letters out, without Spark and Kafka."""
