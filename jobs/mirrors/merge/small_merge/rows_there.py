"""Rows of a mirror that changes meet: their positions in data files, and their values."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import conversions
from pyiceberg import types as ice
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform

from jobs.mirrors.merge.small_merge.changed_keys import ChangedKeys, Numbers
from jobs.mirrors.merge.small_merge.mirror_files import MirrorFile, MirrorFiles, NotSmallError
from jobs.mirrors.model.merge_plan import ORDER_COLUMN
from jobs.quality.incremental_scan.arrow_rows import table_batches
from jobs.tables.write.partitioning import partition_values
from jobs.tables.write.position_deletes import read_position_deletes

MOST_ROWS = 20_000_000
"""Limit of rows whose keys are read here; Spark merges if there are more."""
MOST_FILES = 1_000
"""Limit of data files, and of position-delete files, that are read here; each takes some requests to the store."""
MOST_DELETES = 4_000_000
"""Limit of deleted positions that are read here."""
_AT_ONCE = 8
_KEYS_AT_ONCE = 262_144
_VALUES_AT_ONCE = 4_096
_BYTES_AT_ONCE = 8 * 1024**2
_INT_BYTES = 4
_BOUNDED = (ice.IntegerType, ice.LongType, ice.StringType, ice.DateType)
# A function with one implementation for each type, whose signature a type checker does not see.
_from_bytes: Any = conversions.from_bytes

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RowsThere:
    """Rows of one data file that have the key of a change.

    Attributes:
        at: The file.
        positions: Positions of the rows, ascending.
        changes: Index of each row's change among the collapsed rows.
        newer: Whether each row's change is later than the row.
    """

    at: MirrorFile
    positions: Numbers
    changes: Numbers
    newer: np.ndarray[Any, np.dtype[np.bool_]]


def may_have_rows(files: Sequence[MirrorFile], mirror: Table, keys: pa.Table, first: str) -> list[MirrorFile]:
    """Return the data files that may have a row with one of the keys, by their bounds and their partition.

    Args:
        files: Data files of the mirror, of its current partitioning.
        keys: Keys in the mirror's types.
        first: First column of the key.
    """
    field = mirror.schema().find_field(first)
    if not isinstance(field.field_type, _BOUNDED):
        return [*files]
    values = keys[first].combine_chunks()
    ascending = values.take(pc.sort_indices(values))
    if pa.types.is_date32(ascending.type):
        ascending = ascending.view(pa.int32())
    buckets: dict[int, set[Any]] = {}
    for place, each in enumerate(mirror.spec().fields):
        if each.source_id == field.field_id and isinstance(each.transform, BucketTransform):
            row = pa.RecordBatch.from_arrays([values], [first])
            buckets[place] = {*partition_values(row, each, Schema(field)).unique().to_pylist()}
    kept: list[MirrorFile] = []
    for each in files:
        if any(each.file.partition[place] not in touched for place, touched in buckets.items()):
            continue
        bounds = (each.file.lower_bounds, each.file.upper_bounds)
        least, greatest = (_bound(field.field_type, (found or {}).get(field.field_id)) for found in bounds)
        if least is None or greatest is None or _between(ascending, least, greatest):
            kept.append(each)
    return kept


def _bound(kind: ice.IcebergType, bound: bytes | None) -> Any:
    """Return the value of a bound; None if there is none, or if it cannot be read, such as a truncated text."""
    # A file from before the column was widened has bounds of the narrow type.
    narrow = bound is not None and isinstance(kind, ice.LongType) and len(bound) == _INT_BYTES
    try:
        return None if bound is None else _from_bytes(ice.IntegerType() if narrow else kind, bound)
    except (ValueError, struct.error):
        return None


def _between(ascending: pa.Array, least: Any, greatest: Any) -> bool:
    """Whether one of the values is within the bounds."""
    kind = ascending.type
    above = pc.greater_equal(ascending, pa.scalar(least, kind))
    below = pc.less_equal(ascending, pa.scalar(greatest, kind))
    return bool(pc.any(pc.and_(above, below)).as_py())


def rows_there(
    mirror: Table, found: MirrorFiles, files: Sequence[MirrorFile], keys: ChangedKeys, orders: pa.Array
) -> list[RowsThere]:
    """Return the rows of data files that have the key of a change and are not deleted.

    Args:
        mirror: Mirror that the files belong to; its columns have the types of the keys.
        found: All files of the snapshot.
        files: Data files to read.
        keys: Keys of the changes.
        orders: Order of each change.

    Raises:
        NotSmallError: There is more to read than the limits allow.
        UnreadableFileError: A data file is no Parquet file with field ids, or it cannot be read.
        OSError, pa.ArrowException: A position-delete file is missing or damaged.
    """
    if len(files) > MOST_FILES:
        raise NotSmallError(f"the keys may stand in more than {MOST_FILES:,} files")
    if sum(each.file.record_count for each in files) > MOST_ROWS:
        raise NotSmallError(f"the keys may stand among more than {MOST_ROWS:,} rows")
    least = pc.min(orders).as_py()

    def of(each: MirrorFile) -> RowsThere | None:
        return _rows_of(mirror, each, keys, orders, asked=_may_be_newer(mirror.schema(), each.file, least))

    parts = [each for each in at_once(of, files) if each is not None]
    gone = deleted_positions(mirror, found.deletes_of([each.at for each in parts]), [each.at for each in parts])
    return [each for part in parts if len((each := _alive(part, gone.get(part.at.file.file_path))).positions)]


def deleted_positions(mirror: Table, deletes: Sequence[MirrorFile], data: Sequence[MirrorFile]) -> dict[str, Numbers]:
    """Return the deleted positions of data files, ascending, by the path of each file that has some.

    Args:
        deletes: Position-delete files that may apply.
        data: Data files.

    Raises:
        NotSmallError: There is more to read than the limits allow.
        OSError, pa.ArrowException: A file is missing or damaged.
    """
    if len(deletes) > MOST_FILES or sum(each.file.record_count for each in deletes) > MOST_DELETES:
        raise NotSmallError(f"there are more than {MOST_FILES:,} delete files, or {MOST_DELETES:,} deletes in them")
    ages = {each.file.file_path: each.sequence for each in data}
    every: dict[str, list[Numbers]] = {}
    read = at_once(lambda each: read_position_deletes(mirror.io, each.file, ages), deletes)
    for each, told in zip(deletes, read, strict=True):
        for path, positions in told.items():
            if ages[path] <= each.sequence:
                every.setdefault(path, []).append(positions)
    return {path: np.unique(np.concatenate(parts)) for path, parts in every.items()}


def at_once(work: Callable[[T], R], of: Sequence[T]) -> list[R]:
    """Apply `work` to each item, several at once because they wait for the store; results keep the order."""
    if len(of) < 2:
        return [work(each) for each in of]
    with ThreadPoolExecutor(min(_AT_ONCE, len(of)), thread_name_prefix="files of a mirror") as threads:
        waiting = [threads.submit(work, each) for each in of]
        try:
            return [each.result() for each in waiting]
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise


def _rows_of(mirror: Table, at: MirrorFile, keys: ChangedKeys, orders: pa.Array, *, asked: bool) -> RowsThere | None:
    """Return the rows of a file that have the key of a change, including deleted rows; None if there are none.

    Args:
        asked: Whether a row of the file may be newer than its change, so that orders have to be read.
    """
    columns = [*keys.names, ORDER_COLUMN] if asked else keys.names
    start, found = 0, list[tuple[Numbers, Numbers, Any]]()
    for batch in table_batches(
        mirror.io, at.file, mirror.schema(), columns, rows=_KEYS_AT_ONCE, batch_bytes=_BYTES_AT_ONCE
    ):
        met, changes = keys.met(batch)
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
    return RowsThere(at, positions, changes, newer)


def _may_be_newer(schema: Schema, file: DataFile, least: str) -> bool:
    """Whether a row of a file may have an order at or above the least order of the changes."""
    field = schema.find_field(ORDER_COLUMN).field_id
    upper = (file.upper_bounds or {}).get(field)
    return upper is None or upper >= least.encode()


def _alive(rows: RowsThere, gone: Numbers | None) -> RowsThere:
    if gone is None:
        return rows
    kept = ~np.isin(rows.positions, gone, assume_unique=True)
    return RowsThere(rows.at, rows.positions[kept], rows.changes[kept], rows.newer[kept])


def values_there(mirror: Table, rows: Sequence[RowsThere], columns: Collection[str], *, most_bytes: int) -> pa.Table:
    """Read values of rows, in the order of `rows`.

    Args:
        rows: At least one.
        columns: Names, at least one.
        most_bytes: Limit of bytes for the values.

    Raises:
        NotSmallError: The values exceed the limit.
    """
    schema = mirror.schema()
    named = [field.name for field in schema.fields if field.name in columns]
    parts, size = list[pa.RecordBatch](), 0
    for part in rows:
        read = _ReadGroups(part.positions)
        start = 0
        for batch in table_batches(
            mirror.io, part.at.file, schema, named, rows=_VALUES_AT_ONCE, batch_bytes=_BYTES_AT_ONCE, groups=read.chosen
        ):
            low, high = np.searchsorted(read.places, [start, start + batch.num_rows])
            if low < high:
                parts.append(batch.take(pa.array(read.places[low:high] - start)))
                size += parts[-1].nbytes
                if size > most_bytes:
                    raise NotSmallError(f"values of more than {most_bytes // 1024**2} MB are kept")
            start += batch.num_rows
    return pa.Table.from_batches(parts)


class _ReadGroups:
    """The row groups of a file that contain some rows.

    Args:
        positions: Positions of the rows in the file, ascending.

    Attributes:
        places: Indices of the rows among all rows of the groups that are read.
    """

    def __init__(self, positions: Numbers) -> None:
        self.places: Numbers = positions

    def chosen(self, counts: Sequence[int]) -> list[int]:
        """Return the indices of the groups to read.

        Args:
            counts: Number of rows in each group.
        """
        ends = np.cumsum(counts)
        group = np.searchsorted(ends, self.places, side="right")
        taken = np.unique(group)
        sizes = np.array(counts)[taken]
        # For each group: its first index among the rows read, minus its first position in the file.
        shift = (np.cumsum(sizes) - sizes) - (ends[taken] - sizes)
        self.places = self.places + shift[np.searchsorted(taken, group)]
        return taken.tolist()
