"""Contracts: expectations of Great Expectations on new rows."""
