"""Rows to committed files: data files, the commit protocol, the dead-letter table."""
