"""Converters of Iceberg sinks: their tables, their catalog, and rows that they replaced."""
