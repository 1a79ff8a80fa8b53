"""Command `frazil status`: state of streams."""
