"""Mirrors: the current state of a source's tables, made from their changelogs."""
