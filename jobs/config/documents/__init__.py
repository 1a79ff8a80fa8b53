"""YAML documents with line numbers, their validation, units and secrets."""
