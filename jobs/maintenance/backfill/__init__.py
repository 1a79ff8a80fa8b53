"""Backfill: a rescued field becomes a column, for existing rows as well."""
