"""Topics, offsets and records."""
