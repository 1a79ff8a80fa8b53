"""Ledger, audit, and what became of a record."""
