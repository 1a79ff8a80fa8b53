"""`frazil run`."""
