"""Command `frazil preview`: records through a stream's pipeline, without writing anything."""
