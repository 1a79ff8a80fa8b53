"""`frazil status`."""
