"""Rows whose key changed: Spark's tasks find values that only changes of their former keys have.

Each row is collapsed with all changes of its own key and of its former keys. A task holds the changes of few rows at
once, however many such rows there are.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.expressions import NotNull, Reference
from pyiceberg.types import StructType as IcebergStruct

from jobs.mirrors.fold.change_frame import OLD_KEY, session_cores
from jobs.mirrors.fold.fold import (
    DELETE,
    FOLD_COLUMN,
    FROM_TARGET_COLUMN,
    OP_COLUMN,
    REFOLD_COLUMN,
    UNAVAILABLE_COLUMN,
    UPSERT,
    folded_schema,
)
from jobs.mirrors.fold.fold_tasks import Batches, whole_keys
from jobs.mirrors.fold.merging_session import folded_kinds, kept_frame
from jobs.mirrors.fold.refold import CarriedPositions, History
from jobs.mirrors.fold.row_filter import RowFilter
from jobs.mirrors.model.merge_plan import ORDER_COLUMN
from jobs.mirrors.model.order_token import token_place
from jobs.quality.incremental_scan.offset_ranges import quoted_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


UNKNOWN_COLUMN, MOVED_COLUMN = "_change_unknown", "_change_moved"
"""Counts for a moved row: values that no change has, and those that missing changes of a former key may have."""
_ROW, _OWN = "_change_row", "_change_own"
_ROUNDS = 50


def moved_rows(history: History, keys: DataFrame, row_filter: RowFilter) -> DataFrame:
    """Return the collapsed rows of keys, with values from changes of their former keys.

    Args:
        keys: Distinct keys, in the key's columns; computed already.

    Returns:
        One row for each key that has a change: the result of `FoldTask` with `_change_unknown` and `_change_moved`.
    """
    from pyspark.sql.types import LongType, StructField, StructType

    names, plan = list(history.plan.key), history.plan
    needed = _needed(history, keys)
    wanted = kept_frame(needed.select(*map(_column, names)).distinct(), history.until)
    rows = history.ordered(wanted, wanted.count(), (OLD_KEY,))
    mine = rows.join(needed, names)
    sorted_rows = mine.repartition(session_cores(rows), _ROW).sortWithinPartitions(
        _ROW, *map(_column, names), ORDER_COLUMN
    )
    task = MovedTask(plan.key, plan.columns, row_filter, plan.scope == "source")
    more = [StructField(name, LongType()) for name in (UNKNOWN_COLUMN, MOVED_COLUMN)]
    folded = StructType([*folded_kinds(rows, plan.columns).fields, *more])
    return kept_frame(sorted_rows.mapInArrow(task, folded), history.until)


def moved_from(history: History, keys: DataFrame) -> DataFrame | None:
    """Return the keys of rows that had one of `keys` before, and whose change of key left values out.

    None if no change in the changelog is of that kind.
    """
    steps = moves(history)
    if steps is None:
        return None
    names = list(history.plan.key)
    steps = kept_frame(steps, history.until)
    start = kept_frame(keys.select(*map(_column, names)).distinct(), history.until)

    def later(fresh: DataFrame) -> DataFrame:
        former = fresh.select(*[_column(name).alias(_former(n)) for n, name in enumerate(names)])
        return steps.join(former, former.columns).select(*map(_column, names))

    return _reached(start, later, names, history.until).join(start, names, "left_anti")


def _needed(history: History, keys: DataFrame) -> DataFrame:
    """Number each key (`_change_row`), and return it and all former keys of its row under that number."""
    from pyspark.sql import functions as sql

    names, steps = list(history.plan.key), moves(history)
    number = sql.monotonically_increasing_id().alias(_ROW)
    start = kept_frame(keys.select(*map(_column, names), number, sql.lit(True).alias(_OWN)), history.until)
    if steps is None:
        return start

    def before(fresh: DataFrame) -> DataFrame:
        former = [sql.col(_former(n)).alias(name) for n, name in enumerate(names)]
        moved = steps.join(fresh.select(*map(_column, names), _ROW), names)
        return moved.select(*former, _ROW, sql.lit(False).alias(_OWN))

    return _reached(start, before, [*names, _ROW], history.until)


def _reached(
    start: DataFrame, step: Callable[[DataFrame], DataFrame], by: list[str], until: contextlib.ExitStack
) -> DataFrame:
    """Return rows and all rows that `step` reaches from them, distinct by the columns `by`."""
    found = fresh = start
    for _ in range(_ROUNDS):
        fresh = step(fresh).distinct().join(found, by, "left_anti").select(*map(_column, found.columns))
        fresh = kept_frame(fresh, until)
        if fresh.isEmpty():
            break
        found = found.unionByName(fresh)
    return found


def moves(history: History) -> DataFrame | None:
    """Return the key and the former key (`_former_0`, …) of each change that changed the key and left values out.

    None if no file of the changelog has such a change.
    """
    from pyspark.sql import functions as sql

    schema, names = history.changelog.schema(), list(history.plan.key)
    there = {field.name: field.field_type for field in schema.fields}
    kind = there.get(OLD_KEY)
    if UNAVAILABLE_COLUMN not in there or not isinstance(kind, IcebergStruct):
        return None
    if not {*names} <= {field.name for field in kind.fields}:
        return None
    tasks = history.tasks(NotNull(term=Reference(name=f"{OLD_KEY}.{names[0]}")))
    if not tasks:
        return None
    rows = history.rows(tasks, {*names, OLD_KEY, UNAVAILABLE_COLUMN})
    types = {field.name: field.dataType for field in rows.schema.fields}
    former = [sql.col(OLD_KEY)[name].cast(types[name]) for name in names]
    moved, same = sql.size(UNAVAILABLE_COLUMN) > 0, sql.lit(True)
    for name, value in zip(names, former, strict=True):
        moved, same = moved & value.isNotNull() & _column(name).isNotNull(), same & (value == _column(name))
    kept = rows.where(moved & ~same)
    return kept.select(*map(_column, names), *[value.alias(_former(n)) for n, value in enumerate(former)]).distinct()


@dataclass(frozen=True, slots=True)
class MovedTask:
    """Task that collapses rows with all changes of the keys that each has had; can be pickled.

    Attributes:
        key, columns: Arguments of `fold`.
        row_filter: Condition that the mirror's rows fulfil.
        placed: See `Histories`; if true, changes without a position get the position of the change before them.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    row_filter: RowFilter
    placed: bool

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        carried = CarriedPositions((_ROW, *self.key), self.placed)
        for changes in whole_keys(batches, (_ROW,)):
            rows = carried(changes)
            by_row: dict[int, list[dict[str, Any]]] = {}
            for change in rows.to_pylist():
                by_row.setdefault(change[_ROW], []).append(change)
            found, unknown, moved = list[dict[str, Any]](), list[int](), list[int]()
            for of_row in by_row.values():
                own = next((change for change in of_row if change[_OWN]), None)
                if own is None:
                    continue
                histories = Histories.of(self.key, self.columns, of_row, placed=self.placed)
                row, missing, former = histories.folded(tuple(own[n] for n in self.key))
                found.append(row)
                unknown.append(missing)
                moved.append(former)
            folded = self.row_filter.judged(pa.Table.from_pylist(found, folded_schema(rows.schema, self.columns)))
            folded = folded.append_column(UNKNOWN_COLUMN, pa.array(unknown, pa.int64()))
            yield from folded.append_column(MOVED_COLUMN, pa.array(moved, pa.int64())).to_batches()


def _former(number: int) -> str:
    return f"_former_{number}"


def _column(name: str) -> Column:
    from pyspark.sql import functions as sql

    return sql.col(quoted_name(name))


Key = tuple[Any, ...]
Change = Mapping[str, Any]
_DEEPEST = 200
# Certainty of a value: a change has it, no change has it, or missing changes of a former key may have it.
_SURE, _UNSENT, _MOVED = range(3)


@dataclass(frozen=True, slots=True)
class Histories:
    """All changes of some keys.

    Attributes:
        key, columns: Names of columns.
        changes: Changes by key, sorted by order token.
        placed: Whether the deletion of the former key has the same position as the change to the new key.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    changes: Mapping[Key, Sequence[Change]]
    placed: bool = True

    @staticmethod
    def of(key: Sequence[str], columns: Sequence[str], changes: Iterable[Change], *, placed: bool = True) -> Histories:
        """Return the histories of changes in any sequence, without truncates and truncated changes."""
        found: dict[Key, list[Change]] = {}
        for change in sorted(changes, key=lambda each: each[ORDER_COLUMN]):
            found.setdefault(tuple(change[name] for name in key), []).append(change)
        return Histories(tuple(key), tuple(columns), found, placed)

    def folded(self, key: Key) -> tuple[dict[str, Any], int, int]:
        """Return a key's collapsed row, the number of values that no change has, and how many a former key may have.

        The latter are null, or the last known ones. The deletion of the former key, which the source writes first, has
        not come yet, so changes before it may be missing too.
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
        """Return the value of a column after the first `end` changes of a key, and its certainty; null if unknown."""
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
        """Return the value of a column in the row under its former key, just before the change of key."""
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
    """Count the changes before the deletion at the end of the first `end` changes; None if there is no deletion.

    The source deletes the former key as a part of the change of key, and may have sent the deletion twice.
    """
    rest = end
    while rest and changes[rest - 1][OP_COLUMN] == "d":
        rest -= 1
    return rest if rest < end else None


def _before_deletion_at(changes: Sequence[Change], end: int, place: str) -> int | None:
    """Count the changes before the deletion at a position: that of the change of key which the deletion belongs to.

    A deletion at another position belongs to an earlier row with that key. Offsets of two partitions do not say which
    change came first. Of several deletions at the position, the last one before the change by offset counts, else the
    first one.
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
