"""Spark task: its part of a batch."""
