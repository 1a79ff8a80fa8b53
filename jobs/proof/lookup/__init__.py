"""Lookups from a record, a row or a time to a snapshot, and back."""
