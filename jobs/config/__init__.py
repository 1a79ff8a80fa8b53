"""Streams and settings as data, with the checks of their files."""
