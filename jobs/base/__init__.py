"""Errors, failpoints, and this machine: processes, locks, signals, files."""
