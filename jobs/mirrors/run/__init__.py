"""Merges, publication, status, rebuilds."""
