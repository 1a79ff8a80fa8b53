"""The table of failed records: rows, reading, selection, retention."""
