"""Contracts of Great Expectations on new rows."""
