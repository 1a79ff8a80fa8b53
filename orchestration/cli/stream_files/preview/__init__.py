"""`frazil preview`."""
