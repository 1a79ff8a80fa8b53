"""Arrow rows to data files with statistics, and new tables."""
