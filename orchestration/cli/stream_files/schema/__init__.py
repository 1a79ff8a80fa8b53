"""`frazil schema`."""
