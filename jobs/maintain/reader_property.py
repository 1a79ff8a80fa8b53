"""Reader's property of a table: the snapshot that a reader goes on from, which an expiry of snapshots keeps for it."""

READER_PREFIX = "frazil.reader."
"""Table property `frazil.reader.<name>`: the snapshot (its id, or an instant) that a reader goes on from."""
