"""Proof that every record read stands in its tables, exactly once."""
