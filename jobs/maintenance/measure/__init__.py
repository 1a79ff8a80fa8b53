"""A table's health from its metadata."""
