"""Declared schemas, their Iceberg and Arrow types, and how a table may change."""
