"""`frazil compare`."""
