"""Incremental scan: rows that a stream has landed since a position."""
