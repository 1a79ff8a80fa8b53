"""The open stream, and what a batch gives."""
