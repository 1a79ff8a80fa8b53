"""The current state of a source's tables, merged from their changelogs."""
