"""The sensor that reports closed hours and days of event time: `frazil_closed_partitions`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import dagster as dg
import msgspec
from pyiceberg.table import Table

from assets.closed_partitions import (
    REMEMBERED_SECONDS,
    closed_key,
    closed_outcome,
    late_rows_observations,
    partition_key,
)
from assets.dead_letters import KNOWN_FILES
from assets.metadata import instant
from assets.stream_checks import evaluation
from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.catalog.catalog import NoCatalogYet
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.config.stream.event_time import EventTime
from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.closed_periods import (
    LateRows,
    LateRowsOfTables,
    Period,
    first_period,
    late_rows,
    proven_times,
    rows_by_period,
)
from jobs.quality.publishing.main_freshness import main_freshness, published_times
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.tables.commit.history.branch import TableOnBranch, stream_table, whole_table
from jobs.tables.commit.history.parked_places import parked_places
from jobs.tables.commit.history.publications import publication_id
from jobs.tables.commit.history.stamp_history import history_of
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.dead_letter_table.tally import tally_dead_letters
from jobs.tables.ledger.ledger_row import LedgerRow
from jobs.tables.ledger.ledger_table import read_late_rows
from orchestration.reconcile.background_query import BackgroundQuery
from orchestration.reconcile.cursor import StreamsCursor, checksum, due
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


MOST_PER_TICK = 48
"""Hours or days of a stream that one tick reports; a year of hours takes three hours to catch up."""
_SEARCHED = 4_000
_LATE = LateRowsOfTables()
# A tick has 60 s in all. What takes longer goes on, and is picked up by a later tick.
BUDGET_SECONDS = 15.0
# An unchanged result of the check is reported again after so long, so that the page does not call it stale.
AGAIN_SECONDS = 1800
_LOOKING = BackgroundQuery()
SENSOR = "frazil_closed_partitions"
INTERVAL_SECONDS = 60


@dataclass(frozen=True, slots=True)
class ClosedFacts:
    """Hours or days of a stream, by its tables.

    Attributes:
        times: Up to whose watermark all of it is complete; None where nothing is.
        periods: Periods that have closed and were not reported, oldest first.
        rows: Number of rows of each period; None where counting would read too many files.
        late: Number of rows of each period that came behind the watermark before the period closed.
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
        times: Event times of the table, as far as they are proven.
        through_ms: Up to where they are known to be reported.
        reported: The partitions that Dagster's record has.
        most: Most periods to return.

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
    catalog: "Callable[[], Catalog]",
    through_ms: int | None,
    reported: Collection[str],
    now: float,
) -> tuple[ClosedFacts, int | None]:
    """Facts about a stream's closed hours or days, and the time up to which they are reported after these facts.

    Args:
        through_ms: Time up to which they were reported before; milliseconds since 1970.
        reported: Partitions that Dagster has recorded.

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
    """Whether letters wait for a table that is, or was, suspended; no letter is read if no table ever was."""
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
    spec: StreamSpec, settings: Settings, catalog: "Catalog", stream: str, table: Table, periods: Sequence[Period]
) -> dict[int, int]:
    """Late rows of each hour or day; publications are in no ledger."""

    def ledger(since: datetime) -> list[LedgerRow]:
        return read_late_rows(catalog, settings, stream, table, since) if stream == spec.stream else []

    return late_rows(table.metadata, stream, periods, ledger)


class ClosedStream(msgspec.Struct, omit_defaults=True):
    """State that the sensor keeps of one stream.

    Attributes:
        through: The end of the newest hour or day that is known to be reported; milliseconds since 1970.
        of: What closes, and where its hours begin: at another file `through` counts for nothing.
        sequence: Sequence number of the newest snapshot whose late rows were reported.
        result_sum: Checksum of the check's last result.
        result_at: Time of that result; seconds since 1970.
    """

    through: int | None = msgspec.field(default=None, name="t")
    of: str = msgspec.field(default="", name="o")
    sequence: int = msgspec.field(default=0, name="s")
    result_sum: int = msgspec.field(default=0, name="c")
    result_at: int = msgspec.field(default=0, name="ca")


class ClosedCursor(StreamsCursor[ClosedStream]):
    """The cursor of the sensor. If it is lost, Dagster's own record shows what was reported."""


@dataclass(slots=True)
class ClosedTick:
    """Result of one tick.

    Attributes:
        sentences: The sentences of the tick's message, by stream.
    """

    events: list[dg.AssetMaterialization | dg.AssetObservation | dg.AssetCheckEvaluation] = field(default_factory=list)
    sentences: dict[str, str] = field(default_factory=dict)


def run_closed_tick(
    deployment: Deployment,
    catalog: "Callable[[], Catalog]",
    memory: ClosedCursor,
    reported: Callable[[dg.AssetKey], Collection[str]],
    now: float,
    budget: float = BUDGET_SECONDS,
) -> ClosedTick:
    """Look at every stream that reports its closed hours or days.

    Args:
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
        known_partitions = frozenset(reported(key)) if may_close else frozenset[str]()
        try:
            found = _LOOKING.ask(
                (str(deployment.home), spec.stream, of, through),
                left,
                lambda spec=spec, through=through, known_partitions=known_partitions: look(
                    spec, settings, catalog, through, known_partitions, now
                ),
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
        memory.keep_only([*files.specs, *files.claimed])
    return tick


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
    result_sum = checksum(said.code)
    if result_sum != known.result_sum or due(now, known.result_at, AGAIN_SECONDS) or facts.periods:
        # A materialization since then makes the check read as not evaluated.
        known.result_sum, known.result_at = result_sum, int(now)
        tick.events.append(evaluation(said, key))
    if facts.waits:
        tick.sentences[spec.stream] = f"what closes its {event_time.closes}s is not published yet"
    if facts.periods:
        tick.sentences[spec.stream] = f"{len(facts.periods)} {event_time.closes}s have closed"


def closed_partitions_sensor() -> dg.SensorDefinition:
    """The sensor; it changes nothing and starts nothing."""

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=(
            "Reports each hour or day of event time once, when a stream's watermark has passed its end and its "
            "tables are complete up to it; and the check closed_partitions, which warns of rows that came "
            "afterwards. Looks only at streams whose file sets event_time.closes."
        ),
    )
    def frazil_closed_partitions(
        context: dg.SensorEvaluationContext, deployment: DeploymentResource, catalog: CatalogResource
    ) -> dg.SensorResult:
        memory, instance = ClosedCursor.from_cursor(context.cursor), context.instance
        try:
            tick = run_closed_tick(
                deployment.deployment(), catalog.quick, memory, instance.get_materialized_partitions, time.time()
            )
        except FrazilError as problem:
            return dg.SensorResult(skip_reason=str(problem), cursor=context.cursor)
        if tick.events:
            step("closed_before_report")
        sentences = "\n".join(f"{stream}: {sentence}" for stream, sentence in tick.sentences.items())
        return dg.SensorResult(
            skip_reason=sentences or "Nothing has closed.", cursor=memory.to_cursor(), asset_events=tick.events
        )

    return frazil_closed_partitions
