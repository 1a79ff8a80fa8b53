"""Decoders: bytes of a format to Arrow columns, or a failed row."""
