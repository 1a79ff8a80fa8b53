"""Runs of mirrors: merges, publication, status and rebuilds."""
