"""Conversion of connectors to streams and settings, with an answer for every key."""
