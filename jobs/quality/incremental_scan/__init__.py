"""Rows that a stream has landed since a position."""
