"""Generated records, good and bad, in every format."""
