"""Shapes of a certificate's stream: one table, several by a route, those that values name, a branch behind a gate, or
a changelog with a mirror.

What one of them needs another one's file refuses, so each has a stream, tables and a topic of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, get_args

Shape = Literal["plain", "routed", "named", "gated", "mirrored"]
SHAPES: tuple[Shape, ...] = get_args(Shape)

SHAPES_OF_KINDS: Mapping[str, Shape] = MappingProxyType(
    {"route": "routed", "named tables": "named", "publish": "gated", "mirror": "mirrored"}
)
"""Types of failpoints that the stream with one table does not reach."""

TYPES = ("card", "transfer", "cash", "voucher")
"""The values by which a routed stream's records differ."""

ROUTES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"payments": ("voucher",), "payments_by_card": ("card", "transfer"), "payments_moved": ("transfer", "cash")}
)
"""The types of each table of a routed stream; the first is the stream's own. Of one type records are in two."""

_OWN = "payments"
NAMED = "payments_of_"
"""Begins the names of the tables that values name."""

MIRROR = "payments_now"
"""The mirror of a mirrored stream."""


def row_tables(shape: Shape, namespace: str, types: Sequence[str] = TYPES) -> dict[str, tuple[str, ...]]:
    """The stream's tables of rows, the coordinator first, each with the types of the records that it gets.

    Args:
        shape: Shape of the stream.
        namespace: Namespace of its tables.
        types: Types of the records so far; in the shape `named` each type with a record has a table.
    """
    if shape == "named":
        return {f"{namespace}.{_OWN}": (), **{f"{namespace}.{NAMED}{each}": (each,) for each in types}}
    tables = ROUTES if shape == "routed" else {_OWN: TYPES}
    return {f"{namespace}.{name}": types for name, types in tables.items()}


def shape_blocks(shape: Shape, namespace: str) -> dict[str, Any]:
    """Further blocks of the stream's file for this shape."""
    if shape == "gated":
        expected = {"expect_column_values_to_not_be_null": {"column": "amount"}}
        return {"contract": {"expectations": [expected]}, "publish": {"gate": "contract"}}
    if shape == "mirrored":
        # As often as a file may ask for, and with few files, so that a merge takes seconds.
        mirror = {"table": f"{namespace}.{MIRROR}", "key": ["id"], "every": "5s", "buckets": 2}
        return {"changes": "debezium", "mirrors": [mirror]}
    if shape == "routed":
        own, *others = row_tables(shape, namespace).items()
        tables = [{"match": list(types), "table": name} for name, types in others]
        return {"route": {"by": "type", "tables": tables, "unmatched": {"table": own[0]}}}
    if shape == "named":
        return {"route": {"by": "type", "to": f"{namespace}.{NAMED}{{value}}"}}
    return {}
