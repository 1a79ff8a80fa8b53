"""`frazil dev`."""
