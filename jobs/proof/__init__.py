"""Proof: the audit, and lookups of a record's fate."""
