"""Functions of Spark's tasks: one orders changes, one collapses sorted changes of whole keys."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.mirrors.fold.change_frame import OFFSET, PARTITION, POSITION, TOPIC
from jobs.mirrors.fold.fold import OP_COLUMN, UNAVAILABLE_COLUMN, fold
from jobs.mirrors.fold.order import Order
from jobs.mirrors.fold.row_filter import RowFilter
from jobs.mirrors.model.merge_plan import ORDER_COLUMN

Batches = Iterable[pa.RecordBatch]
KeptTables = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class OrderTask:
    """Task that gives each change its order token and drops repeats, truncates and truncated changes; can be pickled.

    Attributes:
        order: Order of the new changes.
        columns: Columns of the row.
        kept: Changes to keep: those in the order of their partition, late ones, or all.
        extra: More columns to keep.
    """

    order: Order
    columns: tuple[str, ...]
    kept: Literal["in order", "late", "all"] = "in order"
    extra: tuple[str, ...] = ()

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            found = self.order.of_rows(batch[TOPIC], batch[PARTITION], batch[OFFSET], batch[OP_COLUMN], batch[POSITION])
            wanted = {"in order": ~found.late, "late": found.late, "all": np.ones(batch.num_rows, bool)}[self.kept]
            keep = wanted & ~found.dropped
            names = [*self.columns, OP_COLUMN, UNAVAILABLE_COLUMN, *self.extra]
            arrays = [*(batch[name] for name in names), found.tokens]
            kept = pa.RecordBatch.from_arrays(arrays, [*names, ORDER_COLUMN])
            yield kept if keep.all() else kept.filter(pa.array(keep))


@dataclass(frozen=True, slots=True)
class FoldTask:
    """Task that collapses the changes of each key and applies the row filter; can be pickled.

    Attributes:
        key, columns: Arguments of `fold`.
        row_filter: Condition that the mirror's rows fulfil.
        prepared: Applied first to the changes of some keys.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    row_filter: RowFilter
    prepared: KeptTables | None = None

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        for changes in whole_keys(batches, self.key):
            rows = changes if self.prepared is None else self.prepared(changes)
            yield from self.row_filter.judged(fold(rows, self.key, self.columns)).to_batches()


def whole_keys(batches: Batches, key: Sequence[str]) -> Iterator[pa.Table]:
    """Yield sorted rows in tables that hold all rows of their keys."""
    held: list[pa.Table] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = pa.Table.from_batches([batch])
        start = _start_of_last_key(rows, key)
        if held and (start or not _same_key(held[-1], rows, key)):
            yield pa.concat_tables([*held, rows.slice(0, start)])
            held = []
        elif start:
            yield rows.slice(0, start)
        held.append(rows.slice(start))
    if held:
        yield pa.concat_tables(held)


def _start_of_last_key(rows: pa.Table, key: Sequence[str]) -> int:
    other = np.zeros(rows.num_rows, bool)
    for name in key:
        values = rows[name]
        other |= pc.not_equal(values, values[-1]).to_numpy().astype(bool)
    return int(np.flatnonzero(other)[-1]) + 1 if other.any() else 0


def _same_key(before: pa.Table, rows: pa.Table, key: Sequence[str]) -> bool:
    return all(before[name][-1] == rows[name][0] for name in key)
