"""Headers of generated records: the bytes of one header, for a column of one type."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime

import msgspec

from jobs.formats.primitive.block import COLUMN_TYPES
from jobs.formats.problems import (
    BAD_DATE,
    BAD_TIME,
    BAD_TIMESTAMP,
    BAD_UUID,
    INVALID_UTF8,
    WRONG_LENGTH,
    WRONG_TYPE,
)
from jobs.formats.record_columns import HeaderColumn
from jobs.generate.json_encoding import json_leaf, json_value
from jobs.generate.primitive_records import PrimitiveGenerator
from jobs.generate.rows import drawn_value
from jobs.generate.shape import Leaf
from jobs.schema.declared import Primitive

_BAD: Mapping[str, str] = {
    "string": INVALID_UTF8,
    "uuid": BAD_UUID,
    "date": BAD_DATE,
    "time": BAD_TIME,
    "timestamp": BAD_TIMESTAMP,
    "timestamptz": BAD_TIMESTAMP,
}


class HeaderValues:
    """Makes what a header holds; the name of what is bad is the class of the dead letter.

    Args:
        column: What rows have of the header.

    Raises:
        FrazilError: The column is written in a way that this does not know.
    """

    def __init__(self, column: HeaderColumn) -> None:
        kind = column.column.type
        assert isinstance(kind, Primitive)
        self._kind: Primitive = kind
        self._name: str = column.name
        self._leaf: Leaf = json_leaf(kind, column.name)
        numbers = {word: name for name, word in COLUMN_TYPES.items() if name != "short"}
        as_bytes = PrimitiveGenerator(numbers[kind.name], column.name) if column.as_bytes else None
        self._as_bytes: PrimitiveGenerator | None = as_bytes
        self.bad_kinds: Mapping[str, str] = {each: each for each in _classes(kind, as_bytes=column.as_bytes)}

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """Bytes that the column takes."""
        if self._as_bytes is not None:
            return self._as_bytes.good(rng, at)
        value = drawn_value(self._leaf, rng, at, self._name)
        if self._kind.name == "binary":
            return value
        made = json_value(self._kind, value)
        return made.encode() if isinstance(made, str) else msgspec.json.encode(made)

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """Bytes that it refuses."""
        if kind == WRONG_LENGTH:
            return self.good(rng, at)[:-1]
        return b"\xff" if kind == INVALID_UTF8 else rng.choice((b"?", b"a lot", b"none"))


def _classes(kind: Primitive, *, as_bytes: bool) -> tuple[str, ...]:
    if kind.name == "binary":
        return ()
    if as_bytes and kind.name != "string":
        return (WRONG_LENGTH,)
    number = kind.encoding is not None and ("epoch" in kind.encoding or "_of_day" in kind.encoding)
    return (WRONG_TYPE,) if number else (_BAD.get(kind.name, WRONG_TYPE),)
