"""`frazil demo`."""
