"""Commands about files: validate, schema, preview."""
