"""Promotion of kept fields: what a stream keeps in `_extra` becomes a column, in new rows and in those before."""
