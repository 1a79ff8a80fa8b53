"""Property limit: how long a table property may be in a catalog before it has to be cut into parts."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

HIVE_LIMIT = 4_000
_HIVE = "pyiceberg.catalog.hive"


def property_limit(catalog: Catalog) -> int | None:
    """How many bytes a property of a table may have in this catalog before it is too long; None for any number."""
    return HIVE_LIMIT if any(kind.__module__ == _HIVE for kind in type(catalog).__mro__) else None
