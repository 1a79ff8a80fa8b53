"""Spark sessions: start, end, catalog, executors."""
