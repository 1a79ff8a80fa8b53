"""Ranges of offsets that a stream did not read, landed beside it."""
