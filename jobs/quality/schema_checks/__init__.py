"""What a stream's file, records and table agree on."""
