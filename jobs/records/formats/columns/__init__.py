"""Exact conversion of primitive values to Arrow arrays."""
