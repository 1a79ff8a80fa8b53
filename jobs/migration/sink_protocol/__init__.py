"""Protocol of the Iceberg sink: control events, announced files, and the floor in snapshot summaries."""
