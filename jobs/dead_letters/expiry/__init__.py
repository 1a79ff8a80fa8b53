"""Retention of dead letters."""
