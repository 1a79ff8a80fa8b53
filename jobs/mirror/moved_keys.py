"""Moved keys: rows whose key changed, with the values that only a change of the former key has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.mirror.change_frame import OLD_KEY
from jobs.mirror.fold import (
    DELETE,
    FOLD_COLUMN,
    FROM_TARGET_COLUMN,
    OP_COLUMN,
    REFOLD_COLUMN,
    UNAVAILABLE_COLUMN,
    UPSERT,
)
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.order_token import token_place

Key = tuple[Any, ...]
Change = Mapping[str, Any]
_DEEPEST = 200
# How sure a value is: a change has it, none has it, or changes of a former key may have it that are not there.
_SURE, _UNSENT, _MOVED = range(3)


@dataclass(frozen=True, slots=True)
class Histories:
    """All changes of some keys.

    Attributes:
        key, columns: Names.
        changes: By key, in the order of their tokens.
        placed: Whether the deletion of a former key has the position of the change of the row that has another one.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    changes: Mapping[Key, Sequence[Change]]
    placed: bool = True

    @staticmethod
    def of(key: Sequence[str], columns: Sequence[str], changes: Iterable[Change], *, placed: bool = True) -> Histories:
        """Histories of changes in any sequence; no truncates, and none that a truncate removed."""
        found: dict[Key, list[Change]] = {}
        for change in sorted(changes, key=lambda each: each[ORDER_COLUMN]):
            found.setdefault(tuple(change[name] for name in key), []).append(change)
        return Histories(tuple(key), tuple(columns), found, placed)

    def folded(self, key: Key) -> tuple[dict[str, Any], int, int]:
        """The folded row of a key, how many of its values no change has, and how many of these a former key may have.

        The latter are null, or the last ones that are known: the deletion of the former key, which the source writes
        first, is not there yet, nor may changes before it be.
        """
        changes = self.changes[key]
        last = changes[-1]
        row: dict[str, Any] = {
            FOLD_COLUMN: DELETE if last[OP_COLUMN] == "d" else UPSERT,
            ORDER_COLUMN: last[ORDER_COLUMN],
            FROM_TARGET_COLUMN: [],
            REFOLD_COLUMN: False,
        }
        unknown = moved = 0
        for name in self.columns:
            if name in self.key or last[OP_COLUMN] == "d":
                row[name] = last[name]
                continue
            row[name], found = self._value(changes, len(changes), name, _DEEPEST)
            unknown += found != _SURE
            moved += found == _MOVED
        return row, unknown, moved

    def _value(self, changes: Sequence[Change], end: int, name: str, deepest: int) -> tuple[Any, int]:
        """The value of a column after the first changes of a key, and how sure that is; null if it is not known."""
        for change in reversed(changes[:end]):
            if change[OP_COLUMN] == "d":
                break
            if name not in (change[UNAVAILABLE_COLUMN] or ()):
                return change[name], _SURE
            if (former := self._former(change)) is not None and deepest:
                return self._before(former, change[ORDER_COLUMN], name, deepest - 1)
            if change[OP_COLUMN] in ("c", "r"):
                break
        return None, _UNSENT

    def _before(self, former: Key, token: str, name: str, deepest: int) -> tuple[Any, int]:
        """The value of a column in the row that had another key until a change."""
        changes = self.changes.get(former, ())
        end = sum(each[ORDER_COLUMN] < token for each in changes)
        place = token_place(token) if self.placed else None
        rest = _before_deletion(changes, end) if place is None else _before_deletion_at(changes, end, place)
        value, found = self._value(changes, end if rest is None else rest, name, deepest)
        return value, _SURE if found == _SURE and rest is not None else _MOVED

    def _former(self, change: Change) -> Key | None:
        former = change.get(OLD_KEY)
        if former is None or not set(self.key) <= set(former):
            return None
        key = tuple(former[name] for name in self.key)
        return None if None in key or key == tuple(change[name] for name in self.key) else key


def _before_deletion(changes: Sequence[Change], end: int) -> int | None:
    """How many changes were before the deletion that stands last of the first ones; None without it.

    The source deletes the former key as a part of the same change, and may have said so twice.
    """
    rest = end
    while rest and changes[rest - 1][OP_COLUMN] == "d":
        rest -= 1
    return rest if rest < end else None


def _before_deletion_at(changes: Sequence[Change], end: int, place: str) -> int | None:
    """How many changes were before the deletion at a place, that of the change which it is a part of.

    One at another place is of an earlier row with that key. Where both are in two partitions, their offsets do not say
    which came first. Of several deletions at the place the last is meant that the offsets have before the change, else
    the first.
    """
    there = [number for number, each in enumerate(changes) if each[OP_COLUMN] == "d" and _is_at(each, place)]
    if not there:
        return None
    rest = max((number for number in there if number < end), default=there[0])
    while rest and rest - 1 in there:
        rest -= 1
    return rest


def _is_at(change: Change, place: str) -> bool:
    return token_place(change[ORDER_COLUMN]) == place
