"""Stages that a record passes, from bytes to a row."""
