"""A value that is one column: text, bytes, a number."""
