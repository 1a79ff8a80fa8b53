"""Rows of hours and days of event time, counted by the statistics of data files, and by their column at the edges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThan, Reference
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import DateType, IcebergType, PrimitiveType, TimestamptzType

from jobs.spec.event_time import EventTime
from jobs.task.event_time import row_times

MOST_READ = 200
"""Files that one question reads: an hour's own files need not be read, only those that hold some of another, too."""

_DAY_MS = 86_400_000
Period = tuple[int, int]
"""Begin and end, milliseconds since 1970."""


def rows_by_period(table: Table, event_time: EventTime, periods: Sequence[Period]) -> dict[int, int] | None:
    """How many rows a table has of each hour or day, by its begin.

    Args:
        table: As it is to be counted.
        event_time: Names the column.
        periods: Ascending.

    Returns:
        None if that would take the reading of too many files.
    """
    kind, column = event_time.type_in(table.schema()), Reference(".".join(event_time.path))
    if not periods or kind is None:
        # A table without the column is that of a stream's stamps, which has no rows.
        return {}
    condition = And(
        GreaterThanOrEqual(column, _literal(periods[0][0], kind)),  # pyright: ignore[reportCallIssue]
        LessThan(column, _literal(periods[-1][1], kind)),  # pyright: ignore[reportCallIssue]
    )
    return count_files(table, event_time, periods, table.scan(row_filter=condition).plan_files())


def rows_added(table: Table, event_time: EventTime, periods: Sequence[Period], snapshot: Snapshot) -> dict[int, int]:
    """How many rows of each hour or day a snapshot has added, by its begin; those of files beyond `MOST_READ` not."""
    added: list[FileScanTask] = []
    if event_time.type_in(table.schema()) is None:
        return {}
    for manifest in snapshot.manifests(table.io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        added.extend(
            FileScanTask(entry.data_file)
            for entry in manifest.fetch_manifest_entry(table.io)
            if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id
        )
    near = [task for task in added if _touches(task.file, table.schema(), event_time, periods)]
    return count_files(table, event_time, periods, near[:MOST_READ]) or {}


def count_files(
    table: Table, event_time: EventTime, periods: Sequence[Period], tasks: Iterable[FileScanTask]
) -> dict[int, int] | None:
    """How many rows of each hour or day some data files hold; None if too many would have to be read."""
    starts = [start for start, _ in periods]
    found = dict.fromkeys(starts, 0)
    field = table.schema().find_field(".".join(event_time.path))
    unsure: list[FileScanTask] = []
    for task in tasks:
        bounds = _bounds(task.file, table.schema(), event_time)
        period = _of(bounds[0], periods, starts) if bounds else None
        if bounds is None or period is None or bounds[1] >= period[1] or task.delete_files:
            unsure.append(task)
        else:
            found[period[0]] += task.file.record_count - _nulls(task.file).get(field.field_id, 0)
    if len(unsure) > MOST_READ:
        return None
    scan = ArrowScan(table.metadata, table.io, table.schema().select(".".join(event_time.path)), AlwaysTrue())
    ends = np.array([end for _, end in periods], np.int64)
    for batch in scan.to_record_batches(unsure):
        times = row_times(batch, event_time.path)
        at = np.searchsorted(starts, times, side="right") - 1
        inside = (at >= 0) & (times < ends[np.clip(at, 0, None)])
        for index, rows in zip(*np.unique(at[inside], return_counts=True), strict=True):
            found[starts[int(index)]] += int(rows)
    return found


def _of(at_ms: int, periods: Sequence[Period], starts: Sequence[int]) -> Period | None:
    index = bisect_right(starts, at_ms) - 1
    return periods[index] if index >= 0 and at_ms < periods[index][1] else None


def _touches(file: DataFile, schema: Schema, event_time: EventTime, periods: Sequence[Period]) -> bool:
    bounds = _bounds(file, schema, event_time)
    return bool(periods) and (bounds is None or (bounds[0] < periods[-1][1] and bounds[1] >= periods[0][0]))


def _bounds(file: DataFile, schema: Schema, event_time: EventTime) -> Period | None:
    """The least and the greatest event time in a file; None where its statistics do not say."""
    field = schema.find_field(".".join(event_time.path))
    lower, upper = ((each or {}).get(field.field_id) for each in (file.lower_bounds, file.upper_bounds))
    if lower is None or upper is None or not isinstance(field.field_type, PrimitiveType):
        return None
    return _ms(field.field_type, lower), _ms(field.field_type, upper)


def _ms(kind: PrimitiveType, bound: bytes) -> int:
    value = int(from_bytes(kind, bound))
    return value * _DAY_MS if isinstance(kind, DateType) else value // 1_000


def _nulls(file: DataFile) -> Mapping[int, int]:
    return file.null_value_counts or {}


def _literal(at_ms: int, kind: IcebergType | None) -> str:
    """A time as Iceberg's expressions write it."""
    at = np.datetime64(at_ms, "ms")
    if isinstance(kind, DateType):
        return str(at.astype("datetime64[D]"))
    return f"{at.astype('datetime64[us]')}{'+00:00' if isinstance(kind, TimestamptzType) else ''}"
