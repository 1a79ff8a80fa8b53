"""Table properties that readers and mirrors set, and that maintenance respects."""

READER_PREFIX = "frazil.reader."
"""Prefix of a table property, followed by a reader's name: the snapshot (id or instant) that the reader goes on from.
"""
MIRROR_PROPERTY = "frazil.mirror"
"""Property of a mirror's table with its stream and its changelog."""
MIRROR_PART = "~mirror~"
"""Separator of stream and table in the id under which a mirror is stamped."""
