"""Mirror's property of a table: that it is one, so merges and maintenance take turns under the table's lock."""

MIRROR_PROPERTY = "frazil.mirror"
"""Of a mirror's table: of which stream it is, and of which changelog."""
MIRROR_PART = "~mirror~"
"""Stands between stream and table in the id under which a mirror is stamped."""
