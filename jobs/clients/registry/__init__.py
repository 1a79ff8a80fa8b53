"""Client of the schema registry."""
