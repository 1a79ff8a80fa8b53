"""What starts a driver: a local process, Spark, Kubernetes."""
