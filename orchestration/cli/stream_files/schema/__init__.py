"""Commands `frazil schema …`: columns of streams and their tables."""
