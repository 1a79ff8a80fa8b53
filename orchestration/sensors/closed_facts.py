"""Facts of a stream's closed hours or days, by its tables: which are not reported yet, and which got rows since."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from assets.closed_partitions import REMEMBERED_SECONDS, partition_key
from assets.dead_letters import KNOWN_FILES
from jobs.catalog import NoCatalogYet
from jobs.commit.branch import TableOnBranch, stream_table, whole_table
from jobs.commit.event_times import EventTimes
from jobs.commit.named_tables import with_named_tables
from jobs.commit.parked_places import parked_places
from jobs.commit.publications import publication_id
from jobs.commit.stamp_history import history_of
from jobs.deadletter.tally import tally_dead_letters
from jobs.publish.main_freshness import main_freshness, published_times
from jobs.spec.event_time import EventTime
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.source_topics import parked_tables
from jobs.translate import translate_errors
from jobs.verify.closed_periods import (
    LateRows,
    LateRowsOfTables,
    Period,
    first_period,
    late_rows,
    proven_times,
    rows_by_period,
)
from jobs.verify.ledger_row import LedgerRow
from jobs.verify.ledger_table import read_late_rows

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

MOST_PER_TICK = 48
"""Hours or days of a stream that one tick reports; a year of hours takes three hours to catch up."""
_SEARCHED = 4_000
_LATE = LateRowsOfTables()


@dataclass(frozen=True, slots=True)
class ClosedFacts:
    """What a stream's tables say of its hours or days.

    Attributes:
        times: Up to whose watermark all of it is complete; None where nothing is.
        periods: Those that have closed and were not reported, oldest first.
        rows: Of each; None where they were not counted, since too many files would have to be read.
        late: Of each, rows that came behind the watermark before it closed.
        snapshot_id: The table's newest.
        after: Rows that came into closed ones within the last day.
        waits: Whether the stream has landed what would close more, and main lacks it.
    """

    times: EventTimes | None = None
    periods: tuple[Period, ...] = ()
    rows: Mapping[int, int] | None = None
    late: Mapping[int, int] = field(default_factory=dict)
    snapshot_id: int | None = None
    after: tuple[LateRows, ...] = ()
    waits: bool = False


def unreported(
    event_time: EventTime,
    times: EventTimes,
    through_ms: int | None,
    reported: Collection[str],
    most: int = MOST_PER_TICK,
) -> tuple[list[Period], int | None]:
    """The hours or days that have closed and were not reported, oldest first.

    Args:
        event_time: The block of the stream's file.
        times: Its event times, as far as they are proven.
        through_ms: Up to where they are known to be reported.
        reported: The partitions that Dagster's record has.
        most: So many at most.

    Returns:
        They, and up to where all are reported once these are.
    """
    begin = through_ms if through_ms is not None else first_period(times, event_time)
    if begin is None or times.watermark_ms is None:
        return [], through_ms
    closed = list(islice(event_time.periods(begin, times.watermark_ms), _SEARCHED))
    if not closed:
        return [], through_ms
    missing = [period for period in closed if partition_key(event_time, period[0]) not in reported]
    found = missing[:most]
    return found, found[-1][1] if len(missing) > most else closed[-1][1]


def look(
    spec: StreamSpec,
    settings: Settings,
    catalog: Callable[[], Catalog],
    through_ms: int | None,
    reported: Collection[str],
    now: float,
) -> tuple[ClosedFacts, int | None]:
    """What a stream's tables say of its hours or days, and up to where these are reported once that is told.

    Args:
        through_ms: Up to where they are known to be reported.
        reported: The partitions that Dagster's record has.

    Raises:
        FrazilError: The catalog, or the table's storage, does not answer.
    """
    event_time = spec.event_time
    assert event_time is not None
    try:
        connection = catalog()
    except NoCatalogYet:
        return ClosedFacts(), through_ms
    with translate_errors(settings, spec.stream), connection as opened:
        spec = with_named_tables(spec, opened)
        parked = parked_tables(spec, opened)
        names = [name for name in spec.target_names if name not in parked]
        if not all(opened.table_exists(name) for name in names):
            return ClosedFacts(), through_ms
        tables = {name: stream_table(opened, spec, name) for name in names}
        table, stream = tables[spec.table.name], spec.stream
        histories = {name: history_of(each, spec.stream) for name, each in tables.items()}
        times = proven_times(histories, spec.coordinator, event_time)
        if parked or _wait_for_tables(tables[spec.dead_letter_table], stream):
            # What a table that is, or was, parked does not have yet is missing in hours that are over.
            times = None
        waits = False
        if isinstance(table, TableOnBranch) and spec.publish is not None:
            # Readers have of an hour what is published, and what came late to it by its publication.
            landed, times = times, published_times(times, main_freshness(table.whole, stream, table.branch))
            waits = landed is not None and landed != times
            table, stream = whole_table(table), publication_id(stream)
        periods: list[Period] = []
        if times is not None:
            periods, through_ms = unreported(event_time, times, through_ms, reported)
        since_ms = round((now - REMEMBERED_SECONDS) * 1000)
        head = table.current_snapshot()
        return ClosedFacts(
            times,
            tuple(periods),
            _rows(spec, tables | {spec.table.name: table}, periods) if periods else {},
            _late(spec, settings, opened, stream, table, periods) if periods else {},
            head.snapshot_id if head else None,
            tuple(_LATE.since(table, stream, event_time, since_ms)),
            waits,
        ), through_ms


def _wait_for_tables(letters: Table, stream: str) -> bool:
    """Whether letters wait for a table that is, or was, parked; of a stream that never parked one no letter is read."""
    if not parked_places(letters.metadata, stream):
        return False
    return bool(tally_dead_letters(letters, stream, KNOWN_FILES).waiting_for)


def _rows(spec: StreamSpec, tables: Mapping[str, Table], periods: Sequence[Period]) -> dict[int, int] | None:
    """Rows of each hour or day in all tables of timely rows; None where one would take too many files to count."""
    assert spec.event_time is not None
    total = dict.fromkeys((start for start, _ in periods), 0)
    for target in spec.targets:
        if target.role != "rows" or spec.has_late_rows(target.name):
            continue
        found = rows_by_period(tables[target.name], spec.event_time, periods)
        if found is None:
            return None
        total = {start: rows + found.get(start, 0) for start, rows in total.items()}
    return total


def _late(
    spec: StreamSpec, settings: Settings, catalog: Catalog, stream: str, table: Table, periods: Sequence[Period]
) -> dict[int, int]:
    """Late rows of each hour or day; publications are in no ledger."""

    def ledger(since: datetime) -> list[LedgerRow]:
        return read_late_rows(catalog, settings, stream, table, since) if stream == spec.stream else []

    return late_rows(table.metadata, stream, periods, ledger)
