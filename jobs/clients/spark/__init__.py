"""Spark sessions: start, end, catalog and executors."""
