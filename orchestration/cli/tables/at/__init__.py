"""Command `frazil at`: history of records, rows and snapshots."""
