"""Rows of a writer schema as records, for the formats that are not JSON."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol

from pyiceberg import types as ice

from jobs.formats.problems import NULL_IN_REQUIRED, OUT_OF_RANGE
from jobs.generate.rows import Row, drawn_row
from jobs.generate.shape import Leaf, Struct, beyond, narrowed


class RowEncoder(Protocol):
    """Writes rows of a writer schema."""

    @property
    def shape(self) -> Struct:
        """Of the rows."""
        ...

    def encode(self, row: Row) -> bytes:
        """The bytes of a row, without what names the schema."""
        ...


class RowGenerator:
    """Makes records that are as their own schema says, and some of them such that a column refuses them.

    Args:
        encoder: Of the writer schema.
        columns: What has to take the records.
        refuses_more: Whether a record is refused for a field that no column takes.
        evolves: Whether the table follows its records, so that what it does not hold is not always refused.
    """

    def __init__(
        self, encoder: RowEncoder, columns: Iterable[ice.NestedField], *, refuses_more: bool, evolves: bool
    ) -> None:
        by_name = {} if evolves else {each.name: each for each in columns}
        self.encoder: RowEncoder = encoder
        self._shape: Struct = narrowed(encoder.shape, columns, refuses_more=refuses_more)
        self._nulls: tuple[str, ...] = tuple(
            each.name
            for each in encoder.shape.members
            if each.optional and each.name in by_name and by_name[each.name].required
        )
        self._beyond: dict[str, Any] = {}
        for each in encoder.shape.members:
            column = by_name[each.name].field_type if each.name in by_name else None
            if isinstance(each.shape, Leaf) and isinstance(column, ice.PrimitiveType) and not encoder.shape.one:
                value = beyond(each.shape, column)
                self._beyond |= {} if value is None else {each.name: value}
        kinds = {"null_in_required": NULL_IN_REQUIRED} if self._nulls else {}
        self.bad_kinds: Mapping[str, str] = kinds | ({"out_of_range": OUT_OF_RANGE} if self._beyond else {})

    def row(self, rng: random.Random, at: datetime) -> Row:
        """A row that lands."""
        return drawn_row(self._shape, rng, at)

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A record that lands."""
        return self.encoder.encode(self.row(rng, at))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A record that becomes a dead letter of this kind."""
        row = self.row(rng, at)
        if kind == "null_in_required":
            return self.encoder.encode(row | {rng.choice(self._nulls): None})
        name = rng.choice(tuple(self._beyond))
        return self.encoder.encode(row | {name: self._beyond[name]})
