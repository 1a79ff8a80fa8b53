"""A mirror against its changelog, and against the source."""
