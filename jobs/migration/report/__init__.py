"""Fidelity report of an import: what became of every key."""
