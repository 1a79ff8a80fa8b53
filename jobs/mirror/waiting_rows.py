"""Waiting rows: rows whose key changed, with values of a former key of which not all changes had come when merged.

Such a row may be merged before the last changes of its former key, as these stand in another partition. The mirror's
stamp names it with the keys that it waits for, so that the merge which brings a change of one of them folds it again.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.spec.changes import DELETION_MEMORY

MOST_WAITING = 200
"""So many rows are named in a stamp, the newest by their order."""
MOST_FOR_LONG = 50
"""And so many of those that have waited for more than an hour: the stamp stands in each snapshot of the mirror."""
KeyTexts = tuple[str, ...]
_LONG_MS = 3_600_000
_LONGEST_MS = DELETION_MEMORY.days * 86_400_000


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """A row that is folded again once a change of a former key comes.

    Attributes:
        order: Its order token.
        key: As texts.
        former: The keys that it waits for, as texts.
        since_ms: The time of the first changelog snapshot by which it waited; milliseconds since 1970, 0 if not set.
    """

    order: str
    key: KeyTexts
    former: tuple[KeyTexts, ...]
    since_ms: int = 0

    def to_json(self) -> list[Any]:
        """What stands in the stamp."""
        return [self.order, self.since_ms, list(self.key), *map(list, self.former)]

    @staticmethod
    def from_json(packed: Sequence[Any]) -> WaitingRow:
        """The inverse of `to_json`."""
        told, since, key, *former = packed
        # Earlier releases have names of columns behind the order.
        order = told[0] if isinstance(told, list) else told
        return WaitingRow(order, tuple(key), tuple(map(tuple, former)), since)


def joined(
    waiting: Iterable[WaitingRow], fresh: Iterable[WaitingRow], before: Iterable[WaitingRow] = ()
) -> tuple[WaitingRow, ...]:
    """Rows that wait, with those of a merge, at most `MOST_WAITING`; of one that waited before, what is said now.

    Args:
        before: Those that waited before the merge: their time goes on, also where they were folded again.
    """
    by_key = {each.key: each for each in waiting}
    since = {each.key: each.since_ms for each in (*before, *by_key.values())}
    by_key |= {each.key: replace(each, since_ms=since.get(each.key, each.since_ms)) for each in fresh}
    return tuple(sorted(by_key.values(), key=lambda each: (each.order, each.key)))[-MOST_WAITING:]


def aged(waiting: Iterable[WaitingRow], now_ms: int) -> tuple[WaitingRow, ...]:
    """Rows that wait, without those that have waited for a week, or are too many of those that wait for long.

    Changes of a partition that lags come within minutes; what has not come within a week is not waited for.

    Args:
        now_ms: The time of the changelog's snapshot, or a later one, as `since_ms`.
    """
    dated = [replace(each, since_ms=each.since_ms or now_ms) for each in waiting]
    for_long = [each for each in dated if _LONG_MS <= now_ms - each.since_ms < _LONGEST_MS][-MOST_FOR_LONG:]
    return tuple(each for each in dated if now_ms - each.since_ms < _LONG_MS or each in for_long)


def met(
    waiting: Iterable[WaitingRow], changed: Collection[KeyTexts]
) -> tuple[tuple[WaitingRow, ...], tuple[WaitingRow, ...]]:
    """Rows that are to be folded again now, as their key or a former one has a change, and those that still wait.

    Args:
        changed: Keys with changes.
    """
    rows = [*waiting]
    come = [any(key in changed for key in (each.key, *each.former)) for each in rows]
    return (
        tuple(each for each, now in zip(rows, come, strict=True) if now),
        tuple(each for each, now in zip(rows, come, strict=True) if not now),
    )


def above(waiting: Iterable[WaitingRow], floors: Collection[str]) -> tuple[WaitingRow, ...]:
    """Rows that wait, without those that a truncate took.

    Args:
        floors: The order tokens of truncates; rows with a lower one are gone.
    """
    return tuple(each for each in waiting if not any(each.order < floor for floor in floors))


def named_keys(waiting: Iterable[WaitingRow]) -> list[KeyTexts]:
    """The keys of rows that wait, and those that they wait for."""
    return sorted({key for each in waiting for key in (each.key, *each.former)})


def texts_of(rows: pa.Table, key: Sequence[str]) -> list[KeyTexts]:
    """Keys of rows as texts, the same whichever type a value comes in."""
    return list(zip(*(_texts(rows[name]) for name in key), strict=True))


def keys_of(texts: Sequence[KeyTexts], schema: pa.Schema) -> pa.Table:
    """The inverse of `texts_of`.

    Args:
        schema: Of the key's columns.
    """
    return pa.table(
        [_values([each[n] for each in texts], field.type) for n, field in enumerate(schema)],
        schema=schema,
    )


def with_first(rows: pa.Table, name: str, texts: Iterable[KeyTexts]) -> pa.Table:
    """Rows whose value of the key's first column is one of those of some keys.

    Args:
        name: The column's.
    """
    values = _values(sorted({each[0] for each in texts}), rows[name].type)
    return rows.filter(pc.is_in(rows[name], values))


def _texts(values: pa.Array | pa.ChunkedArray) -> list[str]:
    if _is_binary(values.type):
        return [value.hex() for value in values.to_pylist()]
    return values.cast(pa.string()).to_pylist()


def _values(texts: Sequence[str], kind: pa.DataType) -> pa.Array:
    if _is_binary(kind):
        return pa.array([bytes.fromhex(text) for text in texts], kind)
    return pa.array(texts, pa.string()).cast(kind)


def _is_binary(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
