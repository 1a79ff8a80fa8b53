"""YAML with line numbers, validation, units, secrets, redaction."""
