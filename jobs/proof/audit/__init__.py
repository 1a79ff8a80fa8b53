"""Audit: proof that every record read is in its tables exactly once."""
