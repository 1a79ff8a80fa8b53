"""Collapse by key: the changes of each key become one row to set or delete, with the last value of each column.

A source may leave out values that did not change, so the last change of a key may lack some. A missing value is taken
from the newest earlier change that has it, as far back as the key's last insert or delete. If no insert or delete came
before, it is in the mirror's row. If the row had another key before, see `refold`.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.mirrors.model.merge_plan import ORDER_COLUMN

OP_COLUMN, FOLD_COLUMN = "_change_op", "_fold_op"
UNAVAILABLE_COLUMN, FROM_TARGET_COLUMN = "_change_unavailable", "_from_target"
REFOLD_COLUMN = "_refold"
UPSERT, DELETE = "upsert", "delete"
RESETS = ("c", "r", "d")
"""Kinds of changes after which earlier values of the key no longer count."""

Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


def folded_schema(rows: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """Return the schema of `fold`'s result for rows of this schema."""
    return pa.schema(
        [
            pa.field(FOLD_COLUMN, pa.string()),
            pa.field(ORDER_COLUMN, pa.string()),
            *[rows.field(name).with_nullable(True) for name in columns],
            pa.field(FROM_TARGET_COLUMN, pa.list_(pa.string())),
            pa.field(REFOLD_COLUMN, pa.bool_()),
        ]
    )


def fold(table: pa.Table | pa.RecordBatch, key: Sequence[str], columns: Sequence[str]) -> pa.Table:
    """Collapse changes to one row for each key.

    Args:
        table: Changes with `_change_op`, `_change_order`, `_change_unavailable` and the row's columns, sorted by key
            and order, without truncates and without nulls in the key.
        key: Names of the key's columns.
        columns: Names of the row's columns, including the key's.

    Returns:
        Rows with `_fold_op` (upsert or delete), the order of the key's last change, the row's columns,
        `_from_target` (names of columns that are null here because the mirror's row has their value), and `_refold`
        (true if a value is missing here and in the mirror: no change has had it since the key's last insert or delete).
    """
    rows = table.combine_chunks() if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    first = first_of_keys(rows, key)
    starts = np.flatnonzero(first)
    last = np.append(starts[1:], rows.num_rows)[: len(starts)] - 1
    ops = rows[OP_COLUMN]
    picked = rows.take(pa.array(last))
    deleted = boolean_mask(pc.equal(picked[OP_COLUMN], "d"))
    values = {name: picked[name] for name in columns}
    missing = _Missing(len(starts))
    listed = rows_by_unavailable(rows[UNAVAILABLE_COLUMN])
    if listed:
        reset = last_where(boolean_mask(pc.is_in(ops, pa.array(RESETS))), last, starts)
        is_delete = boolean_mask(pc.equal(ops, "d"))
        for name in columns:
            if name not in listed or name in key:
                continue
            there = ~is_delete
            there[listed[name]] = False
            source = last_where(there, last, starts)
            source = np.where(source < reset, -1, source)
            values[name] = rows[name].take(pa.array(source, mask=source < 0))
            missing.note(name, (source < 0) & ~deleted, reset >= 0)
    return pa.table(
        [
            pc.if_else(pa.array(deleted), DELETE, UPSERT),
            picked[ORDER_COLUMN],
            *[values[name] for name in columns],
            missing.names(),
            pa.array(missing.refold),
        ],
        schema=folded_schema(table.schema, columns),
    )


class _Missing:
    """Columns without a value, for each key."""

    def __init__(self, keys: int) -> None:
        self.refold: Mask = np.zeros(keys, bool)
        self._found: list[tuple[str, Ints]] = []
        self._keys: int = keys

    def note(self, name: str, missing: Mask, was_reset: Mask) -> None:
        self.refold |= missing & was_reset
        self._found.append((name, np.flatnonzero(missing & ~was_reset)))

    def names(self) -> pa.Array:
        """Return a list of names for each key, in the order of the columns."""
        sizes = np.zeros(self._keys, np.int64)
        for _, keys in self._found:
            sizes[keys] += 1
        offsets = np.concatenate(([0], np.cumsum(sizes)))
        fill, place = offsets[:-1].copy(), np.zeros(int(offsets[-1]), np.int64)
        for number, (_, keys) in enumerate(self._found):
            place[fill[keys]] = number
            fill[keys] += 1
        named = pa.array([name for name, _ in self._found], pa.string()).take(pa.array(place))
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), named)


def first_of_keys(rows: pa.Table, key: Sequence[str]) -> Mask:
    """Mask of the rows that are the first of their key."""
    first = np.zeros(rows.num_rows, bool)
    first[:1] = True
    for name in key:
        values = rows[name]
        if rows.num_rows > 1:
            first[1:] |= boolean_mask(pc.not_equal(values.slice(1), values.slice(0, rows.num_rows - 1)))
    return first


def last_where(mask: Mask, last: Ints, starts: Ints) -> Ints:
    """Return for each key the index of its last row where the mask is true; -1 if there is none."""
    reached = np.maximum.accumulate(np.where(mask, np.arange(len(mask)), -1))[last]
    return np.where(reached >= starts, reached, -1)


def rows_by_unavailable(unavailable: pa.ChunkedArray) -> dict[str, Ints]:
    """Return the indices of the rows that lack a column's value, by the column's name."""
    lists = unavailable.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks) if lists.num_chunks else pa.array([], unavailable.type)
    names = lists.flatten()
    if not len(names):
        return {}
    rows = pc.list_parent_indices(lists).to_numpy().astype(np.int64)
    encoded = names.dictionary_encode()
    codes = pc.fill_null(encoded.indices, -1).to_numpy()
    return {name: rows[codes == number] for number, name in enumerate(encoded.dictionary.to_pylist())}


def boolean_mask(values: pa.Array | pa.ChunkedArray) -> Mask:
    """Convert booleans without nulls to numpy."""
    return values.to_numpy(zero_copy_only=False).astype(bool)


def whole_numbers(values: pa.Array | pa.ChunkedArray) -> Ints:
    """Convert integers without nulls to numpy."""
    return values.to_numpy(zero_copy_only=False).astype(np.int64)


def sorted_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Sort rows by some columns, ascending, nulls last.

    `pa.Table.sort_by` reads a name that begins with a dot as a path into a struct, so the columns are renamed first.
    """
    by = pa.Table.from_arrays([rows[name] for name in names], names=[str(number) for number in range(len(names))])
    return rows.take(pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names]))
