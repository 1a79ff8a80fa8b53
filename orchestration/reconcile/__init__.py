"""Decisions about streams, made from what is observed of them, and their display."""
