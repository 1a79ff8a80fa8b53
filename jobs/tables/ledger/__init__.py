"""The ledger: one row for each range in a stamp, and counts of rows in ranges."""
