"""`frazil mirror`."""
