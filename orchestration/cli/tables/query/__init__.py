"""Command `frazil query`: SQL over a stream's tables, read only."""
