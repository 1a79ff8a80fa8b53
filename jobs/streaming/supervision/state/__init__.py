"""Desired and actual state of a stream, read once."""
