"""Preview: records go through a stream's task without being written."""
