"""Conversion of bytes to rows: schemas, formats, expressions, transforms."""
