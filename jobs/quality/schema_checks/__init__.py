"""Schema checks: agreement of a stream's file, records and table."""
