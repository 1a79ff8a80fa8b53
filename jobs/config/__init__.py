"""Models of streams and settings, and the checks of their files."""
