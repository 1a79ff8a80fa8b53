"""Clients of the Iceberg catalog in the settings."""
