"""Command `frazil run`: a one-off run of a stream."""
