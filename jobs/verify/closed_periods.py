"""Closed hours and days of event time: those that a stream's stamps prove to be complete, and which got rows later."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.commit.event_times import EventTimes
from jobs.commit.lineage import ancestors
from jobs.commit.recovery import half_committed
from jobs.commit.reissue import as_landed, reissued
from jobs.commit.stamp_history import History, stamps_along_main
from jobs.commit.stamps import PUBLISH_PART, SUMMARY_KEY
from jobs.commit.target_positions import NewestStamps
from jobs.spec.event_time import EventTime
from jobs.verify.period_rows import rows_added

MOST_PERIODS = 240
"""Hours or days, back from the newest closed one, whose rows of other writers are looked for."""


_LOOKED_BACK = 200


@dataclass(frozen=True, slots=True)
class LateRows:
    """Rows that a snapshot brought into hours or days which were closed by then.

    Attributes:
        snapshot_id: Its id; `sequence` its number.
        at_ms: When it was committed; milliseconds since 1970.
        rows: By the begin of the hour or day.
        others: Rows of further ones that the stamp does not name.
        by_stream: Whether the stream itself landed them, or published them; if not, a replay or another writer.
    """

    snapshot_id: int
    sequence: int
    at_ms: int
    rows: Mapping[int, int]
    others: int = 0
    by_stream: bool = True

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.rows.values()) + self.others


def proven_times(histories: Mapping[str, History], anchor: str, event_time: EventTime) -> EventTimes | None:
    """The event times up to whose watermark every record is in the tables, or known to be late; None if nothing is.

    A batch begins only when all targets have the one before, so the newest stamp's bound is proven. Its watermark is
    once all targets have that batch as well. Of tables that were rolled back nothing is proven.

    Args:
        histories: By target, what its table says of the stream.
        anchor: The coordinator.
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
    """The begin of the first hour or day that a stream can close: of its first event, or as its file says."""
    return None if times.first_ms is None else event_time.start_of(max(times.first_ms, event_time.since_ms))


class LateRowsOfTables:
    """Late rows of closed hours and days, of tables that are looked at again and again: each snapshot is read once.

    Args:
        most: Snapshots that are remembered.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._known: OrderedDict[tuple[str, int], LateRows | None] = OrderedDict()
        self._most: int = most

    def since(self, table: Table, stream: str, event_time: EventTime, since_ms: int) -> list[LateRows]:
        """Rows that came into closed hours or days, by the snapshots since a time that are still there, oldest first.

        Hours and days before the first day that the stream's file has reported do not count. Of a gated stream the id
        is that of its publications: what each brought into hours and days that had closed before it is counted by its
        files.

        Args:
            table: The stream's.
            stream: Whose stamps tell what was closed.
            event_time: The block of the stream's file.
            since_ms: Milliseconds since 1970.
        """
        along = list(ancestors(table.metadata))
        # Newest first; a few older ones tell what was closed when the time began.
        recent = sum(1 for _ in takewhile(lambda each: each.timestamp_ms >= since_ms, along)) + _LOOKED_BACK
        after = (along[recent].sequence_number or 0) if recent < len(along) else -1
        if any(reissued(each) for each in along[:recent]):
            # By the numbers of the commits that they stand for, they came before.
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
    """The newest closed hours or days, oldest first."""
    ends = [closed_ms]
    while len(ends) <= MOST_PERIODS and ends[-1] > event_time.since_ms:
        ends.append(event_time.start_of(ends[-1] - 1))
    return zip(reversed(ends[1:]), reversed(ends[:-1]), strict=True)


def _by_stream(snapshot: Snapshot, times: EventTimes | None, event_time: EventTime) -> LateRows | None:
    """Of a batch: those late rows whose whole hour or day was before the watermark that it began with."""
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
    """Whether it is a publication of the stream, which brings no row that its branch did not have."""
    text = snapshot.summary.additional_properties.get(SUMMARY_KEY, "") if snapshot.summary else ""
    return f'"{stream}{PUBLISH_PART}"' in text


def _adds_rows(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None or summary.operation != Operation.APPEND:
        return False
    return int(summary.additional_properties.get("added-records", 0)) > 0
