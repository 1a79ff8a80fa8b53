"""Comparison of a mirror with its changelog, and with its source."""
