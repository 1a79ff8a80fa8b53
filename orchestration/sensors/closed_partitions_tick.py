"""One tick of the sensor `frazil_closed_partitions`: hours and days that have closed, and those that got rows since."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg
import msgspec

from assets.closed_partitions import (
    REMEMBERED_SECONDS,
    closed_key,
    closed_outcome,
    late_rows_observations,
    partition_key,
)
from assets.metadata import instant
from assets.stream_checks import evaluation
from jobs.catalog import NoCatalogYet
from jobs.commit.branch import stream_table
from jobs.commit.event_times import EventTimes
from jobs.commit.stamp_history import history_of, stamps_along_main
from jobs.errors import FrazilError
from jobs.spec.event_time import EventTime
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.translate import translate_errors
from jobs.verify.closed_periods import LateRows, LateRowsOfTables, first_period, proven_times
from jobs.verify.period_rows import Period, rows_by_period
from orchestration.reconcile.background_query import BackgroundQuery
from orchestration.reconcile.cursor import checksum, due
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

# A tick has 60 s in all. What takes longer goes on, and is picked up by a later tick.
BUDGET_SECONDS = 15.0
MOST_PER_TICK = 48
"""Hours or days of a stream that one tick reports; a year of hours takes three hours to catch up."""
_SEARCHED = 4_000
# What the check says is told again after so long, so that the page does not call it stale.
AGAIN_SECONDS = 1800
_LOOKING = BackgroundQuery()
_LATE = LateRowsOfTables()


class ClosedStream(msgspec.Struct, omit_defaults=True):
    """What the sensor remembers of one stream.

    Attributes:
        through: The end of the newest hour or day that is known to be reported; milliseconds since 1970.
        of: What closes, and where its hours begin: at another file `through` counts for nothing.
        sequence: Of the newest snapshot whose late rows were reported.
        told: A checksum of what the check said last; `told_at`: when, seconds since 1970.
    """

    through: int | None = msgspec.field(default=None, name="t")
    of: str = msgspec.field(default="", name="o")
    sequence: int = msgspec.field(default=0, name="s")
    told: int = msgspec.field(default=0, name="c")
    told_at: int = msgspec.field(default=0, name="ca")


class ClosedCursor(msgspec.Struct, omit_defaults=True):
    """The cursor of the sensor. Where it is lost, Dagster's own record tells what was reported."""

    streams: dict[str, ClosedStream] = msgspec.field(default_factory=dict)

    @staticmethod
    def from_cursor(cursor: str | None) -> ClosedCursor:
        """What a cursor holds; nothing of one that cannot be read."""
        with contextlib.suppress(msgspec.DecodeError):
            return msgspec.json.decode(cursor or "{}", type=ClosedCursor)
        return ClosedCursor()

    def to_cursor(self) -> str:
        """As Dagster keeps it."""
        return msgspec.json.encode(self).decode()


@dataclass(frozen=True, slots=True)
class ClosedFacts:
    """What a stream's tables say of its hours or days.

    Attributes:
        times: Up to whose watermark all of it is complete; None where nothing is.
        periods: Those that have closed and were not reported, oldest first.
        rows: Of each; None where they were not counted, since too many files would have to be read.
        late: Of each, rows that came behind the watermark before it closed, as far as stamps are kept.
        snapshot_id: The table's newest.
        after: Rows that came into closed ones within the last day.
    """

    times: EventTimes | None = None
    periods: tuple[Period, ...] = ()
    rows: Mapping[int, int] | None = None
    late: Mapping[int, int] = field(default_factory=dict)
    snapshot_id: int | None = None
    after: tuple[LateRows, ...] = ()


@dataclass(slots=True)
class ClosedTick:
    """What a tick comes to.

    Attributes:
        sentences: By stream, what is to be said.
    """

    events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


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


def run_closed_tick(
    deployment: Deployment,
    catalog: Callable[[], Catalog],
    memory: ClosedCursor,
    reported: Callable[[dg.AssetKey], Collection[str]],
    now: float,
    budget: float = BUDGET_SECONDS,
) -> ClosedTick:
    """Look at every stream that reports its closed hours or days.

    Args:
        catalog: Connects to the catalog.
        reported: The partitions of an asset that Dagster's record has.
        now: Seconds since 1970.
        budget: Seconds to wait for what is looked at; what takes longer goes on for a later tick.
    """
    tick, began = ClosedTick(), time.monotonic()
    files, settings = read_files(deployment), deployment.settings()
    for spec in files.specs.values():
        event_time = spec.event_time
        if event_time is None or event_time.closes is None:
            continue
        known = memory.streams.setdefault(spec.stream, ClosedStream())
        of = f"{spec.table.name} {event_time.column} {event_time.closes} {event_time.zone} {event_time.since}"
        if known.of != of:
            known.through, known.of = None, of
        left = max(0.0, budget - (time.monotonic() - began))
        key, through = closed_key(settings, spec), known.through
        # No watermark is later than now. Asked here: the instance is the tick's, and the look may outlast it.
        may_close = through is None or event_time.end_of(through) <= now * 1000
        told = frozenset(reported(key)) if may_close else frozenset[str]()
        try:
            found = _LOOKING.ask(
                (str(deployment.home), spec.stream, of, through),
                left,
                lambda spec=spec, through=through, told=told: look(spec, settings, catalog, through, told, now),
            )
        except Exception as problem:
            # One stream's trouble is none of the others'.
            tick.sentences[spec.stream] = str(problem) if isinstance(problem, FrazilError) else type(problem).__name__
            continue
        if found is None:
            tick.sentences[spec.stream] = "its table is being looked at"
            continue
        facts, known.through = found
        _report(tick, spec, event_time, key, facts, known, now)
    if not files.absence:
        for stream in set(memory.streams) - set(files.specs) - set(files.claimed):
            del memory.streams[stream]
    return tick


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
        if not all(opened.table_exists(name) for name in spec.target_names):
            return ClosedFacts(), through_ms
        tables = {name: stream_table(opened, spec, name) for name in spec.target_names}
        table = tables[spec.table.name]
        histories = {name: history_of(each, spec.stream) for name, each in tables.items()}
        times = proven_times(histories, spec.coordinator, event_time)
        periods: list[Period] = []
        if times is not None:
            periods, through_ms = unreported(event_time, times, through_ms, reported)
        since_ms = round((now - REMEMBERED_SECONDS) * 1000)
        head = table.current_snapshot()
        return ClosedFacts(
            times,
            tuple(periods),
            rows_by_period(table, event_time, periods),
            _late_before(spec, table.metadata, periods) if periods else {},
            head.snapshot_id if head else None,
            tuple(_LATE.since(table, spec.stream, event_time, since_ms)),
        ), through_ms


def _late_before(spec: StreamSpec, metadata: Any, periods: Sequence[Period]) -> dict[int, int]:
    late = {start: 0 for start, _ in periods}
    for _, stamp in stamps_along_main(metadata, spec.stream):
        for start, rows in (stamp.event_time.batch.periods if stamp.event_time else {}).items():
            if start in late:
                late[start] += rows
    return late


def _report(
    tick: ClosedTick,
    spec: StreamSpec,
    event_time: EventTime,
    key: dg.AssetKey,
    facts: ClosedFacts,
    known: ClosedStream,
    now: float,
) -> None:
    watermark_ms = facts.times.watermark_ms if facts.times else None
    for start, end in facts.periods:
        metadata: dict[str, Any] = {
            "stream": spec.stream,
            "begins": instant(start / 1000),
            "ends": instant(end / 1000),
            "late_rows": facts.late.get(start, 0),
            "snapshot_id": str(facts.snapshot_id),
        }
        if watermark_ms is not None:
            metadata["watermark"] = instant(watermark_ms / 1000)
        if facts.rows is not None:
            metadata["dagster/partition_row_count"] = facts.rows.get(start, 0)
        tick.events.append(
            dg.AssetMaterialization(
                key,
                partition=partition_key(event_time, start),
                description=f"Closed: the watermark of {event_time.column} is past its end, and all tables have what "
                "came in time.",
                metadata=metadata,
            )
        )
    for late in facts.after:
        if late.sequence > known.sequence:
            tick.events.extend(late_rows_observations(key, event_time, late))
            known.sequence = late.sequence
    said = closed_outcome(spec.stream, event_time, facts.after)
    told = checksum(said.code)
    if told != known.told or due(now, known.told_at, AGAIN_SECONDS) or facts.periods:
        # What was materialized since makes the check read as not evaluated.
        known.told, known.told_at = told, int(now)
        tick.events.append(evaluation(said, key))
    if facts.periods:
        tick.sentences[spec.stream] = f"{len(facts.periods)} {event_time.closes}s have closed"
