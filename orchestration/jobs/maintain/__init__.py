"""Dagster's job for maintenance."""
