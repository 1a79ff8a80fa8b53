"""This machine: processes, locks, signals, ports, private files."""
