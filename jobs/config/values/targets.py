"""Targets of a stream: the tables that it commits to, with the names of dynamic tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator

from jobs.config.values.fields import table_name
from jobs.config.values.partitioning import PartitionExpr

# PyIceberg has this constant, but importing it would import everything that reads and writes tables.
MAIN_BRANCH = "main"


DEAD_LETTER_COORDINATES = ("topic", "partition", "offset")

Role = Literal["rows", "dead_letters"]


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One table that a stream commits to.

    Attributes:
        name: Full name of the table.
        role: Whether it holds rows or dead letters.
        coordinator: Whether it is the stream's coordinator: it is committed first in every batch, and its stamps name
            the other tables that have rows of the batch.
        partition_by: Partitioning of a table of rows; frazil decides that of other tables.
        properties: Iceberg's properties of a new table of rows.
        coordinates: Columns that identify the record of a row: topic, partition and offset.
        branch: Branch of the table that the stream writes.
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
"""Limit of characters in a value that names a table."""

SAFE = re.compile(rf"[A-Za-z0-9_]{{1,{LONGEST}}}")
"""Pattern of values that can name a table: names that every catalog and engine accepts without quotes."""


def _to(value: str) -> str:
    namespace, _, last = value.rpartition(".")
    if value.count(VALUE) != 1 or VALUE in namespace:
        raise ValueError(f"must have {VALUE} once, in the table's own name, such as events.{VALUE}; found '{value}'")
    table_name(f"{namespace}.{last.replace(VALUE, 'x')}" if namespace else last.replace(VALUE, "x"))
    return value


NameOfTables = Annotated[str, AfterValidator(_to)]


def named_table(to: str, value: str) -> str:
    """Return the name of the dynamic table of a value that matches `SAFE`."""
    return to.replace(VALUE, value)


def value_of_table(to: str, name: str) -> str | None:
    """Return the value in a dynamic table's name; None if the name does not match the pattern."""
    before, _, after = to.partition(VALUE)
    if not name.startswith(before) or not name.endswith(after):
        return None
    value = name[len(before) : len(name) - len(after)]
    return value if SAFE.fullmatch(value) else None


def may_name_same_table(to: str, other: str) -> bool:
    """Whether values can name one table by both patterns of dynamic tables."""
    before, _, after = to.partition(VALUE)
    other_before, _, other_after = other.partition(VALUE)
    # The shortest name that both could have; the value of each pattern holds what only the other one writes out.
    name = f"{max(before, other_before, key=len)}x{max(after, other_after, key=len)}"
    return value_of_table(to, name) is not None and value_of_table(other, name) is not None
