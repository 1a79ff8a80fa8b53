"""The sensor that reports closed hours and days of event time: `frazil_closed_partitions`."""

# No `from __future__ import annotations` here: Dagster looks at the parameters' types as they are.

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg
import msgspec

from assets.closed_partitions import closed_key, closed_outcome, late_rows_observations, partition_key
from assets.metadata import instant
from assets.stream_checks import evaluation
from jobs.errors import FrazilError
from jobs.spec.event_time import EventTime
from jobs.spec.models import StreamSpec
from jobs.steps import step
from orchestration.reconcile.background_query import BackgroundQuery
from orchestration.reconcile.cursor import StreamsCursor, checksum, due
from orchestration.reconcile.stream_files import read_files
from orchestration.sensors.closed_facts import ClosedFacts, look
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog


# A tick has 60 s in all. What takes longer goes on, and is picked up by a later tick.
BUDGET_SECONDS = 15.0
# What the check says is told again after so long, so that the page does not call it stale.
AGAIN_SECONDS = 1800
_LOOKING = BackgroundQuery()
SENSOR = "frazil_closed_partitions"
INTERVAL_SECONDS = 60


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


class ClosedCursor(StreamsCursor[ClosedStream]):
    """The cursor of the sensor. Where it is lost, Dagster's own record tells what was reported."""


@dataclass(slots=True)
class ClosedTick:
    """What a tick comes to.

    Attributes:
        sentences: By stream, what is to be said.
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
    told = checksum(said.code)
    if told != known.told or due(now, known.told_at, AGAIN_SECONDS) or facts.periods:
        # What was materialized since makes the check read as not evaluated.
        known.told, known.told_at = told, int(now)
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
            "Reports each hour or day of event time once, when a stream's watermark has passed its end and its tables "
            "are complete up to it; and the check closed_partitions, which warns of rows that came afterwards. Looks "
            "only at streams whose file says event_time.closes."
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
        told = "\n".join(f"{stream}: {sentence}" for stream, sentence in tick.sentences.items())
        return dg.SensorResult(
            skip_reason=told or "Nothing has closed.", cursor=memory.to_cursor(), asset_events=tick.events
        )

    return frazil_closed_partitions
