"""A schema registry on this machine."""
