"""Rows there: where in the data files of a mirror the rows stand that changes meet, and their values."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import conversions
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType

from jobs.increment.arrow_rows import table_batches
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.small_merge.key_index import KeyIndex, Numbers
from jobs.mirror.small_merge.not_small import NotSmallError
from jobs.write.partitioning import partition_values
from jobs.write.position_deletes import read_position_deletes

MOST_ROWS = 20_000_000
"""So many rows are looked through for their keys; where there are more, Spark does it."""
_AT_ONCE = 4
_KEYS_AT_ONCE = 262_144
_VALUES_AT_ONCE = 16_384
_INT_BYTES = 4
_BOUNDED = (IntegerType, LongType, StringType, DateType)
# A function by type, whose signature no type checker sees.
_from_bytes: Any = conversions.from_bytes


@dataclass(frozen=True, slots=True)
class RowsThere:
    """Rows of one data file that have the key of a change.

    Attributes:
        file: It.
        positions: Of the rows, ascending.
        changes: For each the place of the change among the folded rows.
        newer: For each whether the change is later than the row.
    """

    file: DataFile
    positions: Numbers
    changes: Numbers
    newer: np.ndarray[Any, np.dtype[np.bool_]]


def may_have_rows(tasks: Sequence[FileScanTask], mirror: Table, keys: pa.Table, first: str) -> list[FileScanTask]:
    """The data files that may have a row with one of the keys, by their bounds and their partition.

    Args:
        tasks: The mirror's data files.
        keys: In the mirror's types.
        first: The first column of the key.
    """
    field = mirror.schema().find_field(first)
    if not isinstance(field.field_type, _BOUNDED):
        return [*tasks]
    values = keys[first].combine_chunks()
    ascending = values.take(pc.sort_indices(values))
    if pa.types.is_date32(ascending.type):
        ascending = ascending.view(pa.int32())
    buckets: dict[tuple[int, int], set[Any]] = {}
    kept: list[FileScanTask] = []
    for task in tasks:
        lower, upper = ((each or {}).get(field.field_id) for each in (task.file.lower_bounds, task.file.upper_bounds))
        if lower is not None and upper is not None:
            least, greatest = (_bound(field.field_type, bound) for bound in (lower, upper))
            if not _between(ascending, least, greatest):
                continue
        spec = mirror.metadata.specs()[task.file.spec_id]
        for place, each in enumerate(spec.fields):
            if each.source_id != field.field_id or not isinstance(each.transform, BucketTransform):
                continue
            numbered = spec.spec_id, place
            if numbered not in buckets:
                row = pa.RecordBatch.from_arrays([values], [first])
                buckets[numbered] = {*partition_values(row, each, Schema(field)).unique().to_pylist()}
            if task.file.partition[place] not in buckets[numbered]:
                break
        else:
            kept.append(task)
    return kept


def _bound(kind: IcebergType, bound: bytes) -> Any:
    # A file that landed before the column was widened has the bounds of what it was.
    narrow = isinstance(kind, LongType) and len(bound) == _INT_BYTES
    return _from_bytes(IntegerType() if narrow else kind, bound)


def _between(ascending: pa.Array, least: Any, greatest: Any) -> bool:
    """Whether one of the values is neither below nor above."""
    kind = ascending.type
    above = pc.greater_equal(ascending, pa.scalar(least, kind))
    below = pc.less_equal(ascending, pa.scalar(greatest, kind))
    return bool(pc.any(pc.and_(above, below)).as_py())


def rows_there(mirror: Table, tasks: Sequence[FileScanTask], index: KeyIndex, orders: pa.Array) -> list[RowsThere]:
    """The rows of data files that have the key of a change and are not deleted.

    Args:
        mirror: Of which the files are; its columns have the types of the keys.
        tasks: The files, with those of their deleted positions.
        index: The keys of the changes.
        orders: Of each change its order.

    Raises:
        UnreadableFileError: A data file is no Parquet file with field ids, or it cannot be read.
        OSError, pa.ArrowException: A file of deleted positions is gone, or damaged.
    """
    if not tasks:
        return []
    least = pc.min(orders).as_py()

    def found(task: FileScanTask) -> RowsThere | None:
        return _rows_of(mirror, task.file, index, orders, asked=_may_be_newer(mirror.schema(), task.file, least))

    with ThreadPoolExecutor(min(_AT_ONCE, len(tasks)), thread_name_prefix="keys of a mirror") as threads:
        parts = [each for each in threads.map(found, tasks) if each is not None]
    paths = {each.file.file_path for each in parts}
    files = {file.file_path: file for task in tasks if task.file.file_path in paths for file in task.delete_files}
    gone = read_position_deletes(mirror.io, files.values(), sorted(paths))
    return [each for part in parts if len((each := _alive(part, gone.get(part.file.file_path))).positions)]


def _rows_of(mirror: Table, file: DataFile, index: KeyIndex, orders: pa.Array, *, asked: bool) -> RowsThere | None:
    """Rows of a file with a key of a change, deleted ones among them; None if there are none.

    Args:
        asked: Whether a row of it may be newer than its change.
    """
    columns = [*index.key, ORDER_COLUMN] if asked else [*index.key]
    start, found = 0, list[tuple[Numbers, Numbers, Any]]()
    for batch in table_batches(mirror.io, file, mirror.schema(), columns, rows=_KEYS_AT_ONCE):
        met, changes = index.met(batch)
        if len(met):
            newer = np.ones(len(met), bool)
            if asked:
                own = pc.fill_null(batch[ORDER_COLUMN].take(pa.array(met)), "")
                newer = pc.greater(orders.take(pa.array(changes)), own).to_numpy(zero_copy_only=False).astype(bool)
            found.append((met + start, changes, newer))
        start += batch.num_rows
    if not found:
        return None
    positions, changes, newer = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return RowsThere(file, positions, changes, newer)


def _may_be_newer(schema: Schema, file: DataFile, least: str) -> bool:
    """Whether a row of a file may have an order that is not below the least of the changes."""
    field = schema.find_field(ORDER_COLUMN).field_id
    upper = (file.upper_bounds or {}).get(field)
    return upper is None or upper >= least.encode()


def _alive(rows: RowsThere, gone: Numbers | None) -> RowsThere:
    if gone is None:
        return rows
    kept = ~np.isin(rows.positions, gone, assume_unique=True)
    return RowsThere(rows.file, rows.positions[kept], rows.changes[kept], rows.newer[kept])


def values_there(mirror: Table, rows: Sequence[RowsThere], columns: Collection[str], *, most_bytes: int) -> pa.Table:
    """Values of rows, one part behind the other.

    Args:
        rows: At least one.
        columns: Names, at least one.
        most_bytes: Of the values.

    Raises:
        NotSmallError: They are more.
    """
    schema = mirror.schema()
    named = [field.name for field in schema.fields if field.name in columns]
    parts, size = list[pa.RecordBatch](), 0
    for part in rows:
        start = 0
        for batch in table_batches(mirror.io, part.file, schema, named, rows=_VALUES_AT_ONCE):
            low, high = np.searchsorted(part.positions, [start, start + batch.num_rows])
            if low < high:
                parts.append(batch.take(pa.array(part.positions[low:high] - start)))
                size += parts[-1].nbytes
                if size > most_bytes:
                    raise NotSmallError(f"values of more than {most_bytes // 1024**2} MB are kept")
            start += batch.num_rows
    return pa.Table.from_batches(parts)


def is_parquet(task: FileScanTask) -> bool:
    """Whether a data file and those of its deleted positions are Parquet."""
    return all(each.file_format is FileFormat.PARQUET for each in (task.file, *task.delete_files))
