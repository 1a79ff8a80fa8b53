"""`frazil logs`: log of a stream's driver."""
