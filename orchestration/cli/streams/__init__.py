"""Commands about streams: run, status, start, stop, accept."""
