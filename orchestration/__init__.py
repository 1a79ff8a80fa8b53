"""What Dagster loads, and the `frazil` command."""
