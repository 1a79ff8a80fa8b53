"""Waiting rows: rows whose key changed, with values of a former key of which not all changes had come when merged.

Such a row may be merged before the last changes of its former key, as these stand in another partition. The mirror's
stamp names it with the keys that it waits for, so that the merge which brings a change of one of them folds it again.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from jobs.spec.changes import DELETION_MEMORY

MOST_WAITING = 200
"""So many rows are named in a stamp, the newest by their order."""
MOST_FOR_LONG = 50
"""And so many of those that have waited for more than an hour: the stamp stands in each snapshot of the mirror."""
MOST_COLUMNS = 8
"""So many are named for each of them."""
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
        columns: Those whose values it waits for; none where that is not known, as in stamps of earlier
            versions, or where they are many.
    """

    order: str
    key: KeyTexts
    former: tuple[KeyTexts, ...]
    since_ms: int = 0
    columns: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        """What stands in the stamp."""
        order = [self.order, *self.columns] if self.columns else self.order
        return [order, self.since_ms, list(self.key), *map(list, self.former)]

    @staticmethod
    def from_json(packed: Sequence[Any]) -> WaitingRow:
        """The inverse of `to_json`."""
        told, since, key, *former = packed
        order, *columns = told if isinstance(told, list) else [told]
        return WaitingRow(order, tuple(key), tuple(map(tuple, former)), since, tuple(columns))


@dataclass(frozen=True, slots=True)
class KeyChange:
    """What an increment says of a key.

    Attributes:
        order: The order token of its last change.
        kept: Columns whose values are those of the mirror's row; None if the row is gone.
        judged: Whether the filter could tell without values of that row.
    """

    order: str
    kept: tuple[str, ...] | None
    judged: bool = True


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
    waiting: Iterable[WaitingRow], changed: Mapping[KeyTexts, KeyChange]
) -> tuple[tuple[WaitingRow, ...], tuple[WaitingRow, ...]]:
    """Rows that are to be folded again now, as a former key has a change, and those that still wait.

    A row that is gone waits no more, nor does one whose values have come by a change of its own.

    Args:
        changed: Keys with changes.
    """
    come, still = list[WaitingRow](), list[WaitingRow]()
    for each in waiting:
        own = changed.get(each.key)
        if any(former in changed for former in each.former) or (own is not None and not own.judged):
            come.append(each)
        elif (row := each if own is None else _behind(each, own)) is not None:
            still.append(row)
    return tuple(come), tuple(still)


def _behind(row: WaitingRow, own: KeyChange) -> WaitingRow | None:
    """A row that waits, behind a change of its own; None if it waits no more."""
    if own.order <= row.order:
        # The mirror's row is newer, and stays.
        return row
    if not own.kept:
        return None
    columns = tuple(name for name in row.columns if name in own.kept)
    return replace(row, order=own.order, columns=columns) if columns or not row.columns else None


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
