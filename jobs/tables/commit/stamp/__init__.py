"""The stamp of a commit: a stream's offsets, counts and positions, as JSON."""
