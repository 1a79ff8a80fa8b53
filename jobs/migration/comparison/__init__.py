"""Rows of a stream beside the rows that a sink has made of the same records."""
