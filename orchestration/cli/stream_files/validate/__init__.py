"""Command `frazil validate`: checks of streams and settings."""
