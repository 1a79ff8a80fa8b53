"""Names of a catalog's properties, to find a misspelt one: PyIceberg's, Iceberg's Java ones and frazil's own."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path

# PyIceberg's. A test compares the types.
CATALOG_TYPES = ("rest", "sql", "hive", "glue", "dynamodb", "bigquery", "in-memory")
STORE_AUTHORITIES = "s3.ssl.cabundle"
"""Property of the file with the authorities that sign certificates of S3: frazil's own, for all of its clients."""
STORE_PREFIXES = ("s3.", "client.", "gcs.", "adls.", "hf.", "hdfs.", "oss.", "py-io-impl", "http-client.")
"""How the properties begin that say how to get at a table's files."""
_FILE = Path(__file__).with_name("catalog_properties.json")
# Beginnings of names whose rest is up to whoever writes them.
_FREE = "named_by_whoever_writes_them"
# A name with one letter wrong, or without its prefix; names of the same kind are less alike.
_NEAR = 0.8


@cache
def _names() -> tuple[frozenset[str], tuple[str, ...]]:
    groups: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))
    free = tuple(groups.pop(_FREE))
    return frozenset(name for names in groups.values() for name in names), free


def known_properties() -> frozenset[str]:
    """The names that clients of catalogs and stores know."""
    return _names()[0]


def nearest_property(name: str) -> str | None:
    """The known property that a name is a misspelling of, as it seems; None if the name is known, or near to none."""
    known, free = _names()
    if name in known or name.startswith(free):
        return None
    return next(iter(difflib.get_close_matches(name.casefold(), sorted(known), 1, _NEAR)), None)
