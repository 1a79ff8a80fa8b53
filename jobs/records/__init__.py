"""Bytes to rows: schemas, formats, expressions, transforms."""
