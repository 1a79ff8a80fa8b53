"""Drain of a stream: lands everything that its topics hold at the start, then ends."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.base.system.full_disk import is_full
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.state_store.epochs import COMMAND, Opener
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import Role, TargetSpec
from jobs.streaming.driver.batch.retry import query_failure_text
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import BatchDone
from jobs.streaming.driver.context.unknown_fields import UnknownFieldsRecord
from jobs.streaming.driver.opening.opening import decide_start, opened
from jobs.streaming.driver.process.batch_pace import ByteBound
from jobs.streaming.driver.process.outbox_thread import OutboxState, outbox_thread
from jobs.streaming.driver.process.query import StreamQuery
from jobs.tables.commit.stamp.event_times import NO_EVENTS, EventCounts
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Drained:
    """Outcome of a drain.

    Attributes:
        counts: Records of this drain.
        snapshots: Newest snapshots of the targets; None for a target without snapshots.
        lag: Records per partition that arrived after the drain had begun.
        undecided: Records per partition behind those, of open transactions.
        seconds: Time from the start of the query to its end.
        refusals: Commits that were refused because another process committed first.
        letters: State of the dead letters' topic; None without one.
    """

    stream: str
    epoch: int
    counts: Counts = field(default_factory=Counts)
    batches: list[BatchDone] = field(default_factory=list)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    lag: dict[TopicPartition, int] = field(default_factory=dict)
    undecided: dict[TopicPartition, int] = field(default_factory=dict)
    snapshots: dict[TargetSpec, int | None] = field(default_factory=dict)
    valid_through_ms: int | None = None
    watermark_ms: int | None = None
    seconds: float = 0.0
    refusals: int = 0
    retired: tuple[str, ...] = ()
    letters: OutboxState | None = None

    @property
    def events(self) -> EventCounts:
        """Event times of its records, and the numbers of late records by lateness."""
        return sum((each.events for each in self.batches), NO_EVENTS)

    def snapshot(self, role: Role) -> int | None:
        """Newest snapshot of the target with this role; None without one."""
        return next((head for target, head in self.snapshots.items() if target.role == role), None)


@dataclass(frozen=True, slots=True)
class DrainProgress:
    """Progress of a drain.

    Attributes:
        total: Records between the stream's position and the log's end at the start.
    """

    batch: BatchDone
    counts: Counts
    total: int


def drain(
    spec: StreamSpec,
    settings: Settings,
    kafka: KafkaLog,
    get_spark: Callable[[], SparkSession],
    *,
    on_open: Callable[[OpenStream, int], None] = lambda stream, total: None,
    on_progress: Callable[[DrainProgress], None] = lambda progress: None,
    opener: Opener = COMMAND,
) -> Drained:
    """Land everything that the stream's topics hold now, exactly once, and return.

    Args:
        get_spark: Called once the stream is open and records wait. So neither a refusal nor empty topics start a JVM.
        on_open: Called with the opened stream and the number of waiting records.

    Raises:
        FrazilError: The obstacle, and the next command.
    """
    with connect_catalog(settings) as catalog, opened(spec, settings, catalog, kafka, opener) as stream:
        total = sum(max(0, end - stream.begin.offsets.get(p, end)) for p, end in stream.log.latest.items())
        on_open(stream, total)
        result = Drained(spec.stream, stream.epoch, retired=stream.begin.retired)
        result.undecided = stream.log.undecided()
        with outbox_thread(stream, settings) as letters:
            unknown = UnknownFieldsRecord(stream.folder.store, spec.config_hash)

            def landed(done: BatchDone) -> None:
                unknown.add(done.counts.landed, done.unknown_fields, time.time())
                if letters and done.letters:
                    letters.wake()
                if done.counts.read:
                    on_progress(DrainProgress(done, result.counts, total))

            if total:
                _run_queries(stream, kafka, get_spark(), result, landed)
            if letters:
                result.letters = letters.finish(settings.kafka.request_timeout.total_seconds())
        result.positions = dict(stream.begin.offsets) | result.positions
        # A target without records that has its own columns is not created.
        there = [target for target in spec.targets if target.name in stream.targets]
        result.snapshots = {target: stream.targets[target.name].snapshot_id for target in there}
        result.refusals = sum(target.refusals for target in stream.targets.values())
        newest = stream.anchor.newest
        result.valid_through_ms = newest.valid_through_ms if newest else None
        result.watermark_ms = stream.watermark_ms
        return result


def _run_queries(
    stream: OpenStream,
    kafka: KafkaLog,
    spark: SparkSession,
    result: Drained,
    on_landed: Callable[[BatchDone], None],
) -> None:
    """Run the query; if topics or the bound change under it, decide again where to begin, and start another one."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def landed(done: BatchDone, end: dict[TopicPartition, int]) -> None:
        result.positions = end
        if done.counts.read:
            result.counts += done.counts
            result.lag, result.undecided = done.lag, done.undecided
            result.batches.append(done)
        on_landed(done)

    started, bound = time.monotonic(), ByteBound(stream.spec.source)
    while True:
        before = len(result.batches)
        try:
            query = StreamQuery(stream, kafka, drain=True, bound=bound, on_batch=landed)
            query.run(spark)
            if not query.outgrown:
                break
            decide_start(stream, kafka)
        except (PySparkException, Py4JError) as problem:
            if is_full(problem):
                raise
            begin = stream.begin
            # The state of the topics tells more than the query's error: lost offsets and lost topics stop here.
            decide_start(stream, kafka)
            if len(result.batches) == before and stream.begin == begin:
                raise FrazilError(
                    f"stream {stream.spec.stream}: the Spark query failed: {query_failure_text(problem)}",
                    fix=f"look at the Spark log, then `frazil run {stream.spec.stream}`",
                ) from problem
            log.warning("stream %s: begins again after %s", stream.spec.stream, query_failure_text(problem))
    result.seconds = time.monotonic() - started
