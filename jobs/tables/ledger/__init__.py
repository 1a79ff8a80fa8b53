"""The ledger: one row for each range that a stamp names, and counts of rows in ranges."""
