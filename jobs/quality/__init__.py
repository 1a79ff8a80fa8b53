"""Contracts, write-audit-publish, incremental scans, schema checks."""
