"""Execution of a plan under the table's lock."""
