"""The commands of `frazil`, one module each."""
