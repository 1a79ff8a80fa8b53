"""The definitions that Dagster loads, and the `frazil` command."""
