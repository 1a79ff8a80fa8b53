"""Targets of a stream: the tables that it commits to, and those among them that values of its records name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator

from jobs.config.values.fields import table_name
from jobs.config.values.partitioning import PartitionExpr

# PyIceberg has the name too, but importing it imports all that reads and writes tables.
MAIN_BRANCH = "main"


DEAD_LETTER_COORDINATES = ("topic", "partition", "offset")

Role = Literal["rows", "dead_letters"]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One table that a stream commits to.

    Attributes:
        name: Its full name.
        role: Whether it holds the stream's rows, or the records that became none.
        coordinator: Whether it is stamped in every batch, before all others; its stamps say who else has rows of the
            batch. One table of a stream is.
        partition_by: Of a table of rows; the others are partitioned as frazil decides.
        properties: Iceberg's properties that a table of rows is created with.
        coordinates: The columns that say which record a row is of: topic, partition and offset.
        branch: Of the table, that the stream writes.
    """

    name: str
    role: Role
    coordinator: bool = False
    partition_by: tuple[PartitionExpr, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, compare=False)
    coordinates: tuple[str, str, str] = DEAD_LETTER_COORDINATES
    branch: str = MAIN_BRANCH


VALUE = "{value}"
LONGEST = 100
"""Characters of a value that names a table."""

SAFE = re.compile(rf"[A-Za-z0-9_]{{1,{LONGEST}}}")
"""Values that name a table: what every catalog and every engine takes without quotes."""


def _to(value: str) -> str:
    namespace, _, last = value.rpartition(".")
    if value.count(VALUE) != 1 or VALUE in namespace:
        raise ValueError(f"must have {VALUE} once, in the table's own name, such as events.{VALUE}; found '{value}'")
    table_name(f"{namespace}.{last.replace(VALUE, 'x')}" if namespace else last.replace(VALUE, "x"))
    return value


NameOfTables = Annotated[str, AfterValidator(_to)]


def named_table(to: str, value: str) -> str:
    """The table of a value, which is safe."""
    return to.replace(VALUE, value)


def value_of_table(to: str, name: str) -> str | None:
    """The value that a table is named by; None if no value names it."""
    before, _, after = to.partition(VALUE)
    if not name.startswith(before) or not name.endswith(after):
        return None
    value = name[len(before) : len(name) - len(after)]
    return value if SAFE.fullmatch(value) else None
