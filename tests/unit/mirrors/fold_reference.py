"""A mirror to which one change at a time is applied: what folding and merging are held against."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

Row = dict[str, Any]
UNKNOWN = "?"
"""A value that no change has, nor the row before."""


class Change(NamedTuple):
    """A change of one key: its operation, the row, and the names of the columns that it lacks."""

    op: str
    row: Mapping[str, Any]
    unavailable: tuple[str, ...] = ()


def applied(row: Row | None, change: Change) -> Row | None:
    """The row of a key after a change, None where there is none; UNKNOWN where nobody can know a value."""
    if change.op == "d":
        return None
    before: Mapping[str, Any] = (row or {}) if change.op == "u" else {}
    return {name: before.get(name, UNKNOWN) if name in change.unavailable else v for name, v in change.row.items()}


def all_applied(row: Row | None, changes: Iterable[Change]) -> Row | None:
    """The row of a key after its changes, in their order."""
    for change in changes:
        row = applied(row, change)
    return row
