"""Rows that a small merge writes, and the positions of the rows that they replace."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.mirrors.fold.fold import FOLD_COLUMN, FROM_TARGET_COLUMN, UPSERT, Mask
from jobs.mirrors.merge.small_merge.changed_keys import Numbers
from jobs.mirrors.merge.small_merge.mirror_files import MirrorFile, MirrorFiles, NotSmallError
from jobs.mirrors.merge.small_merge.rows_there import RowsThere, deleted_positions, values_there
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, ORDER_COLUMN, MergePlan
from jobs.tables.write.position_deletes import Positions
from jobs.tables.write.projection import projected
from jobs.tables.write.pyiceberg_files import arrow_schema_in_files

log = logging.getLogger(__name__)

MOST_BYTES = 128 * 1024**2
"""Limit of bytes read from the mirror for values that stay."""
TOGETHER = 8
FEW_POSITIONS = 100_000
"""`TOGETHER` delete files of a partition with fewer positions than this in all become one in the next merge."""
_MOST_AT_ONCE = 200
_NONE: Positions = np.zeros(0, np.int64)


def in_types_of(schema: Schema, rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Project columns of collapsed rows to the mirror's types.

    Raises:
        ProjectionError: The mirror cannot hold a value.
    """
    fields = [schema.find_field(name) for name in names]
    kinds = arrow_schema_in_files(Schema(*fields))
    arrays = [
        projected(one_array(rows[each.name]), each.field_type, kind.with_nullable(True), each.name, rows.num_rows)
        for each, kind in zip(fields, kinds, strict=True)
    ]
    return pa.Table.from_arrays(arrays, names=[*names])


def one_array(values: pa.ChunkedArray) -> pa.Array:
    """Combine the chunks into one array."""
    whole = values.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def unmet_rows(folded: pa.Table, there: Sequence[RowsThere]) -> Mask:
    """Mask of the collapsed rows that meet no row of the mirror."""
    unmet = np.ones(folded.num_rows, bool)
    for part in there:
        unmet[part.changes] = False
    return unmet


def new_rows(mirror: Table, folded: pa.Table, there: Sequence[RowsThere], plan: MergePlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a merge writes.

    Args:
        folded: Collapsed changes, one for each key.
        there: Rows of the mirror that they meet.

    Raises:
        NotSmallError: No row of the mirror has a value that a change lacks, or too many values are needed.
        ProjectionError: The mirror cannot hold the rows.
    """
    changes = np.concatenate([np.zeros(0, np.int64), *(part.changes for part in there)])
    newer = np.concatenate([np.zeros(0, bool), *(part.newer for part in there)])
    ops = one_array(folded[FOLD_COLUMN])
    upsert = pc.equal(ops, UPSERT).to_numpy(zero_copy_only=False).astype(bool)
    listed = pc.fill_null(pc.list_value_length(one_array(folded[FROM_TARGET_COLUMN])), 0)
    lacking = (listed.to_numpy(zero_copy_only=False) > 0) & upsert
    unmet = unmet_rows(folded, there)
    if (lacking & unmet).any():
        raise NotSmallError("no row of the mirror has a value that was not sent")
    soft = plan.deletes == "soft"
    # Columns that the changelog does not have keep their values.
    own = other_columns(mirror.schema(), plan)
    # Rows whose values are needed, by their index among all met rows.
    kept = np.flatnonzero(lacking[changes] | (newer & upsert[changes] if own else False))
    stay = np.flatnonzero(newer & ~upsert[changes]) if soft else np.zeros(0, np.int64)
    values = _values(mirror, there, folded, kept, stay, own, soft=soft)
    needed = pa.array(np.flatnonzero(lacking[changes][kept]))
    if soft and len(needed) and pc.any(_column(values, DELETED_COLUMN).take(needed)).as_py():
        raise NotSmallError("a value that was not sent is in a deleted row")
    set_at = np.flatnonzero(newer & upsert[changes])
    chosen = np.concatenate([changes[set_at], np.flatnonzero(unmet & upsert)])
    by_key = np.argsort(chosen, kind="stable")
    # The index of each new row's values in `values`; -1 if it needs none.
    place_of = np.full(len(changes), -1)
    place_of[kept] = np.arange(len(kept))
    places = np.concatenate([place_of[set_at], np.full(len(chosen) - len(set_at), -1)])[by_key]
    chosen = chosen[by_key]
    if len(chosen):
        yield _set_rows(mirror.schema(), folded.take(pa.array(chosen)), values, places, own, plan)
    if len(stay):
        yield _deleted_rows(mirror.schema(), values.slice(len(kept)), folded.take(pa.array(changes[stay])))


def other_columns(schema: Schema, plan: MergePlan) -> tuple[str, ...]:
    """Return the columns of a mirror that no change sets."""
    ours = {*plan.columns, ORDER_COLUMN, DELETED_COLUMN}
    return tuple(field.name for field in schema.fields if field.name not in ours)


def _values(
    mirror: Table,
    there: Sequence[RowsThere],
    folded: pa.Table,
    kept: Numbers,
    stay: Numbers,
    own: Sequence[str],
    *,
    soft: bool,
) -> pa.Table:
    """Read values of the mirror's rows: first those of `kept`, then those of `stay`."""
    if not len(kept) and not len(stay):
        return pa.table({})
    names = {field.name for field in mirror.schema().fields}
    if not len(stay):
        lists = one_array(folded[FROM_TARGET_COLUMN])
        names = {*pc.unique(lists.flatten()).to_pylist(), *own, *([DELETED_COLUMN] if soft else ())}
    # Files are read once, in their order.
    wanted = np.unique(np.concatenate([kept, stay]))
    parts, start = list[RowsThere](), 0
    for part in there:
        low, high = np.searchsorted(wanted, [start, start + len(part.positions)])
        mine = wanted[low:high] - start
        if len(mine):
            parts.append(RowsThere(part.at, part.positions[mine], part.changes[mine], part.newer[mine]))
        start += len(part.positions)
    found = values_there(mirror, parts, names, most_bytes=MOST_BYTES)
    return found.take(pa.array(np.searchsorted(wanted, np.concatenate([kept, stay]))))


def _set_rows(
    schema: Schema, folded: pa.Table, values: pa.Table, places: Numbers, own: Sequence[str], plan: MergePlan
) -> pa.RecordBatch:
    """Return rows as their changes set them; values that the source left out come from the mirror's row.

    Args:
        values: Values of the mirror's rows.
        places: Index of each row among these; -1 if it has none.
        own: Columns that no change sets.
    """
    rows = in_types_of(schema, folded, [*plan.columns, ORDER_COLUMN])
    lists = one_array(folded[FROM_TARGET_COLUMN])
    parents = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    named = lists.flatten()
    for name in pc.unique(named).to_pylist():
        mine = parents[pc.equal(named, name).to_numpy(zero_copy_only=False).astype(bool)]
        source = np.arange(len(rows))
        source[mine] = len(rows) + places[mine]
        sent, kept = one_array(rows[name]), _column(values, name)
        both = pa.concat_arrays([sent, kept.cast(sent.type) if kept.type != sent.type else kept])
        rows = rows.set_column(rows.schema.get_field_index(name), name, both.take(pa.array(source)))
    if values.num_rows:
        for name in own:
            there = _column(values, name).take(pa.array(places, mask=places < 0))
            rows = rows.append_column(name, there)
    if plan.deletes == "soft":
        rows = rows.append_column(DELETED_COLUMN, pa.repeat(pa.scalar(False), len(rows)))
    return _batch(rows)


def _deleted_rows(schema: Schema, values: pa.Table, folded: pa.Table) -> pa.RecordBatch:
    """Return rows that stay as deleted, with the order of their deletion."""
    order = in_types_of(schema, folded, [ORDER_COLUMN])[ORDER_COLUMN]
    rows = values.set_column(values.schema.get_field_index(ORDER_COLUMN), ORDER_COLUMN, order)
    gone = pa.repeat(pa.scalar(True), len(rows))
    return _batch(rows.set_column(rows.schema.get_field_index(DELETED_COLUMN), DELETED_COLUMN, gone))


def _column(values: pa.Table, name: str) -> pa.Array:
    return one_array(values[name])


def _batch(rows: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([one_array(each) for each in rows.columns], names=rows.column_names)


def replaced_rows(there: Sequence[RowsThere]) -> list[tuple[MirrorFile, dict[str, Positions]]]:
    """Return for each partition one of its files, and the positions of replaced rows by the paths of their files."""
    found: dict[tuple[object, ...], tuple[MirrorFile, dict[str, Positions]]] = {}
    for part in there:
        if part.newer.any():
            _, positions = found.setdefault(part.at.partition, (part.at, {}))
            positions[part.at.file.file_path] = part.positions[part.newer]
    return [*found.values()]


def with_former_deletes(
    mirror: Table, found: MirrorFiles, at: MirrorFile, positions: dict[str, Positions]
) -> tuple[list[DataFile], dict[str, Positions]]:
    """Return the positions for a partition's new delete file, with those of its small delete files if these are many.

    Args:
        found: All files of the snapshot.
        at: A data file of the partition.
        positions: New positions.

    Returns:
        The delete files that the new one replaces, and the positions.
    """
    small, total = list[MirrorFile](), 0
    for each in sorted(found.deletes, key=lambda each: each.file.record_count):
        total += each.file.record_count if each.partition == at.partition else 0
        if total >= FEW_POSITIONS or len(small) == _MOST_AT_ONCE:
            break
        if each.partition == at.partition:
            small.append(each)
    if len(small) < TOGETHER:
        return [], positions
    data = [each for each in found.data if each.partition == at.partition]
    try:
        former = deleted_positions(mirror, small, data)
    except (OSError, pa.ArrowException) as problem:
        log.warning("deletes of mirror %s are not brought together: %s", ".".join(mirror.name()), problem)
        return [], positions
    every = {path: np.union1d(former.get(path, _NONE), positions.get(path, _NONE)) for path in {*former, *positions}}
    return [each.file for each in small], every
