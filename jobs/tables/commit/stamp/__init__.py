"""What a commit says of a stream: offsets, counts, positions, as JSON."""
