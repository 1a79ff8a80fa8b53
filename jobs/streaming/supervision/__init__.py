"""Supervision: desired and actual state of streams; starting, watching and ending drivers."""
