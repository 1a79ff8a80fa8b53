"""State store: documents of streams in a folder, an object store or PostgreSQL."""
