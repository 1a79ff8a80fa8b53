"""The process that runs several streams."""
