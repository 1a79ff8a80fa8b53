"""The open stream, and the results of a batch."""
