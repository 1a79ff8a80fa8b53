"""Properties of tables that readers and mirrors set, and that maintenance goes by."""

READER_PREFIX = "frazil.reader."
"""Table property `frazil.reader.<name>`: the snapshot (its id, or an instant) that a reader goes on from."""
MIRROR_PROPERTY = "frazil.mirror"
"""Of a mirror's table: of which stream it is, and of which changelog."""
MIRROR_PART = "~mirror~"
"""Stands between stream and table in the id under which a mirror is stamped."""
