"""The process that runs one stream."""
