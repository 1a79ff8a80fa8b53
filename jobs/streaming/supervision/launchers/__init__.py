"""Launchers of drivers: local process, Spark, Kubernetes."""
