"""`frazil at`."""
