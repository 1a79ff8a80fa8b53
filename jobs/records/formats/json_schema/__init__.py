"""JSON behind the id of its JSON Schema."""
