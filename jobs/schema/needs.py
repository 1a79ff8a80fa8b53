"""Needs: changes of a table's schema without which records lose a field, or are refused."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from pyiceberg.types import IcebergType

Path: TypeAlias = tuple[str, ...]
"""Names from the table's top, as Iceberg names nested fields: `element` of a list, `key` and `value` of a map."""

Change: TypeAlias = Literal["add", "widen", "relax"]


@dataclass(frozen=True, slots=True)
class Need:
    """One change that records need.

    Attributes:
        change: `add`: the column is not there; `widen`: it has a type that does not hold the records'; `relax`: it is
            required, and records have none or null.
        path: Of the column.
        type: Of the records' field, of `add` and `widen`; ids in it mean nothing.
        row: A record of the block that needs it.
        former: Of `add`: a column that the record lacks, and that may be the same under its former name.
    """

    change: Change
    path: Path
    type: IcebergType | None = None
    row: int = 0
    former: Path | None = None

    def at(self, row: int) -> Need:
        """The need of another record."""
        return replace(self, row=row)


class Coordinates(NamedTuple):
    """Where a record is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class RecordNeed(NamedTuple):
    """A change that a record needs, and where the record is.

    Attributes:
        change: As of `Need`; so are `path`, `type` and `former`.
        at: The first record with this need.
    """

    change: Change
    path: Path
    type: IcebergType | None
    at: Coordinates
    former: Path | None = None


def column_name(path: Path) -> str:
    """The dotted name of a column, as Iceberg has it."""
    return ".".join(path)
