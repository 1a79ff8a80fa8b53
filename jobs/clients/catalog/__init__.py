"""The Iceberg catalog that the settings name."""
