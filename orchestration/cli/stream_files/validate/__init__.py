"""`frazil validate`."""
