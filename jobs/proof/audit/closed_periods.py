"""Hours and days of event time: which are proven complete, their rows, and their late rows."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import takewhile

import numpy as np
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue, And, GreaterThanOrEqual, LessThan, Reference
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.types import DateType, IcebergType, PrimitiveType, TimestamptzType

from jobs.config.stream.event_time import EventTime
from jobs.streaming.task.event_time import row_times
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.reissue import as_landed, reissued
from jobs.tables.commit.history.stamp_history import History, stamped_snapshots, stamps_along_main
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.commit.stamp.stamps import PUBLISH_PART, SUMMARY_KEY
from jobs.tables.commit.stamp.target_positions import NewestStamps
from jobs.tables.ledger.ledger_row import LedgerRow, effective_rows

MOST_READ = 200
"""Most files that one query reads: only files with rows of several hours have to be read."""

_DAY_MS = 86_400_000
Period = tuple[int, int]
"""Start and end, milliseconds since 1970."""

# Events may be ahead of the clock by this: a late one of an hour may come this long before the hour starts.
_AHEAD = timedelta(days=2)
LateRowsInLedger = Callable[[datetime], Sequence[LedgerRow]]
"""Returns the ledger's rows about late rows since a time, and about rollbacks."""
MOST_PERIODS = 240
"""Most hours or days, back from the newest closed one, that are searched for rows of other writers."""
_LOOKED_BACK = 200


def rows_by_period(table: Table, event_time: EventTime, periods: Sequence[Period]) -> dict[int, int] | None:
    """Number of rows of a table in each hour or day, by its start.

    Args:
        table: Table to count.
        periods: Hours or days, ascending.

    Returns:
        None if too many files would have to be read.
    """
    kind, column = event_time.type_in(table.schema()), Reference(".".join(event_time.path))
    if not periods or kind is None:
        # A table without the column only has a stream's stamps, and no rows.
        return {}
    condition = And(
        GreaterThanOrEqual(column, _literal(periods[0][0], kind)),  # pyright: ignore[reportCallIssue]
        LessThan(column, _literal(periods[-1][1], kind)),  # pyright: ignore[reportCallIssue]
    )
    return count_files(table, event_time, periods, table.scan(row_filter=condition).plan_files())


def rows_added(table: Table, event_time: EventTime, periods: Sequence[Period], snapshot: Snapshot) -> dict[int, int]:
    """Rows that a snapshot added to each hour or day, by its start; files beyond `MOST_READ` do not count."""
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
    """Rows of data files in each hour or day; None if too many files would have to be read."""
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
    """Least and greatest event time in a file; None if its statistics lack them."""
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
    """A time as a literal of Iceberg's expressions."""
    at = np.datetime64(at_ms, "ms")
    if isinstance(kind, DateType):
        return str(at.astype("datetime64[D]"))
    return f"{at.astype('datetime64[us]')}{'+00:00' if isinstance(kind, TimestamptzType) else ''}"


def late_rows(
    metadata: TableMetadata, stream: str, periods: Sequence[Period], ledger: LateRowsInLedger
) -> dict[int, int]:
    """Number of rows behind the watermark in each hour or day, by its start.

    Args:
        metadata: Metadata of the table, seen from the branch that the stream writes.
        stream: Stream with the stamps.
        periods: At least one.
        ledger: Called only if stamps with late rows may have expired.
    """
    kept = list(stamped_snapshots(metadata, stream))
    told = [stamp.event_time.batch.periods for _, stamp in kept if stamp.event_time]
    begin = datetime.fromtimestamp(min(start for start, _ in periods) / 1000, UTC) - _AHEAD
    if not kept or min(snapshot.timestamp_ms for snapshot, _ in kept) > begin.timestamp() * 1000:
        first = min((snapshot.sequence_number or 0 for snapshot, _ in kept), default=None)
        told += _expired(ledger(begin), first)
    return _summed(told, periods)


def _expired(rows: Iterable[LedgerRow], first: int | None) -> list[Mapping[int, int]]:
    """The ledger's late rows of commits before the first existing one, without those that a rollback removed."""
    return [row.late for row in effective_rows(rows) if row.late and (first is None or row.sequence < first)]


def _summed(told: Iterable[Mapping[int, int]], periods: Sequence[Period]) -> dict[int, int]:
    late = {start: 0 for start, _ in periods}
    for each in told:
        for start, rows in each.items():
            if start in late:
                late[start] += rows
    return late


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows that a snapshot added to closed hours or days.

    Attributes:
        snapshot_id: Id of the snapshot; `sequence`: its sequence number.
        at_ms: Commit time, milliseconds since 1970.
        rows: Rows by the start of the hour or day.
        others: Rows of further ones that the stamp does not name.
        by_stream: Whether the stream itself landed or published them; otherwise a replay or another writer did.
    """

    snapshot_id: int
    sequence: int
    at_ms: int
    rows: Mapping[int, int]
    others: int = 0
    by_stream: bool = True

    @property
    def total(self) -> int:
        """Number of all rows."""
        return sum(self.rows.values()) + self.others


def proven_times(histories: Mapping[str, History], anchor: str, event_time: EventTime) -> EventTimes | None:
    """Event times up to whose watermark every record is in the tables, or known to be late; None without any.

    A batch begins only after all targets have the previous one, so the newest stamp's bound is proven. Its watermark is
    proven once all targets have that batch as well. Tables that were rolled back prove nothing.

    Args:
        histories: History of the stream on each target.
        event_time: The block of the stream's file.
    """
    newest = histories[anchor].newest
    if newest is None or newest.event_time is None or newest.event_time.column != event_time.column:
        return None
    if any(each.rolled_back or each.doubt for each in histories.values()):
        return None
    stamps: NewestStamps = {name: each.newest for name, each in histories.items()}
    times = newest.event_time
    watermark = times.bound_ms if half_committed(stamps, anchor) else times.watermark_ms
    return None if watermark is None else EventTimes(times.column, watermark, times.bound_ms, first_ms=times.first_ms)


def first_period(times: EventTimes, event_time: EventTime) -> int | None:
    """Start of the first hour or day that a stream can close: of its first event, or set in its file."""
    return None if times.first_ms is None else event_time.start_of(max(times.first_ms, event_time.since_ms))


class LateRowsOfTables:
    """Late rows of closed hours and days, for tables that are checked repeatedly: each snapshot is read once.

    Args:
        most: Most snapshots that are cached.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._known: OrderedDict[tuple[str, int], LateRows | None] = OrderedDict()
        self._most: int = most

    def since(self, table: Table, stream: str, event_time: EventTime, since_ms: int) -> list[LateRows]:
        """Rows that existing snapshots since a time added to closed hours or days, oldest first.

        Hours and days before the first day in the stream's file do not count. For a write-audit-publish stream the id
        is that of its publications: rows that a publication added to hours and days closed before are counted in its
        files.

        Args:
            stream: Stream whose stamps show what was closed.
            event_time: The block of the stream's file.
            since_ms: The time, milliseconds since 1970.
        """
        along = list(ancestors(table.metadata))
        # Newest first; a few older snapshots show what was closed at that time.
        recent = sum(1 for _ in takewhile(lambda each: each.timestamp_ms >= since_ms, along)) + _LOOKED_BACK
        after = (along[recent].sequence_number or 0) if recent < len(along) else -1
        if any(reissued(each) for each in along[:recent]):
            # By the sequence numbers of their originals, they came before.
            after = -1
        stamps = dict(stamps_along_main(table.metadata, stream, after))
        found: list[LateRows] = []
        closed_ms: int | None = None
        for snapshot in reversed(along[:recent]):
            stamp = stamps.get(snapshot.snapshot_id)
            times = stamp.event_time if stamp else None
            landed = as_landed(snapshot)
            if landed.timestamp_ms >= since_ms:
                published = stamp is not None and stamp.stream.endswith(PUBLISH_PART)
                late = _by_stream(landed, times, event_time) if stamp and not published else None
                before = closed_ms
                if published and times and times.bound_ms is not None:
                    before = event_time.start_of(times.bound_ms)
                others = stamp is None and not _publishes(snapshot, stream)
                if (others or published) and before is not None and _adds_rows(snapshot):
                    late = self._by_files(table, snapshot, event_time, before)
                    if late and published:
                        late = replace(late, by_stream=True)
                found += [late] if late else []
            if times and times.watermark_ms is not None:
                closed_ms = event_time.start_of(times.watermark_ms)
        return found

    def _by_files(self, table: Table, snapshot: Snapshot, event_time: EventTime, closed_ms: int) -> LateRows | None:
        key = (str(table.metadata.table_uuid), snapshot.snapshot_id)
        if key not in self._known:
            periods = list(_before(event_time, closed_ms))
            rows = {at: n for at, n in rows_added(table, event_time, periods, snapshot).items() if n}
            number = snapshot.sequence_number or 0
            self._known[key] = (
                LateRows(snapshot.snapshot_id, number, snapshot.timestamp_ms, rows, by_stream=False) if rows else None
            )
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return self._known[key]


def _before(event_time: EventTime, closed_ms: int) -> Iterator[tuple[int, int]]:
    """Newest closed hours or days, oldest first."""
    ends = [closed_ms]
    while len(ends) <= MOST_PERIODS and ends[-1] > event_time.since_ms:
        ends.append(event_time.start_of(ends[-1] - 1))
    return zip(reversed(ends[1:]), reversed(ends[:-1]), strict=True)


def _by_stream(snapshot: Snapshot, times: EventTimes | None, event_time: EventTime) -> LateRows | None:
    """Late rows of a batch whose whole hour or day was before its initial watermark."""
    if times is None or times.bound_ms is None or not times.batch.periods:
        return None
    begin, bound_ms = event_time.since_ms, times.bound_ms
    rows = {at: n for at, n in times.batch.periods.items() if at >= begin and event_time.end_of(at) <= bound_ms}
    if not rows and not times.batch.others:
        return None
    return LateRows(
        snapshot.snapshot_id, snapshot.sequence_number or 0, snapshot.timestamp_ms, rows, times.batch.others
    )


def _publishes(snapshot: Snapshot, stream: str) -> bool:
    """Whether it is a publication of the stream, which adds only rows of its branch."""
    text = snapshot.summary.additional_properties.get(SUMMARY_KEY, "") if snapshot.summary else ""
    return f'"{stream}{PUBLISH_PART}"' in text


def _adds_rows(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None or summary.operation != Operation.APPEND:
        return False
    return int(summary.additional_properties.get("added-records", 0)) > 0
