"""Names of catalog properties (PyIceberg's, Java's and frazil's), for finding misspelt ones."""

from __future__ import annotations

import difflib
import json
from functools import cache
from pathlib import Path

# PyIceberg's types; a test compares them.
CATALOG_TYPES = ("rest", "sql", "hive", "glue", "dynamodb", "bigquery", "in-memory")
STORE_AUTHORITIES = "s3.ssl.cabundle"
"""frazil's property of the file with S3's certificate authorities, for all clients."""
STORE_PREFIXES = ("s3.", "client.", "gcs.", "adls.", "hf.", "hdfs.", "oss.", "py-io-impl", "http-client.")
"""Prefixes of properties for access to a table's files."""
_FILE = Path(__file__).with_name("catalog_properties.json")
# Prefixes of names whose rest is free.
_FREE = "named_by_whoever_writes_them"
# Similarity of names with one wrong letter, or without their prefix; other names of the same kind are less similar.
_NEAR = 0.8


@cache
def _names() -> tuple[frozenset[str], tuple[str, ...]]:
    groups: dict[str, list[str]] = json.loads(_FILE.read_text(encoding="utf-8"))
    free = tuple(groups.pop(_FREE))
    return frozenset(name for names in groups.values() for name in names), free


def known_properties() -> frozenset[str]:
    """Return the names that clients of catalogs and stores know."""
    return _names()[0]


def nearest_property(name: str) -> str | None:
    """Return the known property that a name seems to misspell; None if the name is known, or similar to none."""
    known, free = _names()
    if name in known or name.startswith(free):
        return None
    return next(iter(difflib.get_close_matches(name.casefold(), sorted(known), 1, _NEAR)), None)
