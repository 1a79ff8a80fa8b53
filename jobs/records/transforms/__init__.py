"""Steps between decoding and the table."""
