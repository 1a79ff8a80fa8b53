"""Decoders that are functions of installed packages."""
