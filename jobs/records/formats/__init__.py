"""Decoders that turn bytes of a format into Arrow columns or failed rows."""
