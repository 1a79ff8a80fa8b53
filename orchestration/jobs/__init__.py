"""Dagster's jobs with their schedules and reports."""
