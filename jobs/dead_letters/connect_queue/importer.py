"""Import of a queue, which is a Kafka Connect sink's dead-letter topic, and its dry run.

The topic is read as a stream of its own on the same tables, stamped as `<stream>~connect`. The stamps have the position
in each of its partitions, so that a batch lands completely or not at all, and never twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import astuple, dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.connect_queue.opening import (
    as_stream,
    open_queue,
    queue_id,
    refuse_missing,
)
from jobs.dead_letters.connect_queue.task import (
    MAX_RECORDS,
    BatchSize,
    QueueCounts,
    QueueTask,
)
from jobs.dead_letters.replay.opening import replay_session
from jobs.dead_letters.replay.request import Pace, ReplayRequest, columns_left_null
from jobs.dead_letters.replay.result import Reason, Reasons, ReplayProgress
from jobs.dead_letters.replay.routing import refuse_other_tables, refuse_parked
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.driver.context.source_topics import coordinator_stamp, parked_tables
from jobs.streaming.driver.context.writer_schemas import schema_lookup
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables.gone_tables import refuse_gone, without_dropped
from jobs.streaming.task.tally import count_unknown_fields
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.errors import unaccounted
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    Ranges,
    TopicPartition,
)
from jobs.tables.commit.stamp.target_positions import TargetNeed, restart_positions, target_positions


@dataclass(frozen=True, slots=True)
class QueueResult:
    """Result of an import from Connect's dead-letter topic.

    Attributes:
        read: Records of the topic that were taken now.
        landed: Records of these that landed in the stream's tables.
        dead: Records of these that became frazil's dead letters.
        known: Records of these that were in one of the tables already.
        tombstones: Records without a value.
        without_coordinates: Records in `dead` whose headers lack their origin: they have the topic's own coordinates.
        left: Records that the stream reads by itself: they are of its topics, from where its tables are not complete
            yet.
        earlier: Always 0: a run counts only what it took itself.
        dry_run: Whether nothing was taken, and the numbers are a forecast.
        reasons: Causes of dead letters in a dry run, the most frequent first.
        null_columns: Columns that the correction leaves out, which are null in the rows.
        unknown_fields: Records by the path of a field without a column.
    """

    stream: str
    topic: str
    read: int = 0
    landed: int = 0
    dead: int = 0
    known: int = 0
    tombstones: int = 0
    without_coordinates: int = 0
    left: int = 0
    seconds: float = 0.0
    dry_run: bool = False
    reasons: tuple[Reason, ...] = ()
    earlier: int = 0
    null_columns: tuple[str, ...] = ()
    unknown_fields: dict[str, int] = field(default_factory=dict)


def import_queue(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    topic: str,
    request: ReplayRequest,
    *,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> QueueResult:
    """Import what a topic of Connect's dead letters holds now and was not imported before.

    Args:
        request: Request with correction and rate; its selection is ignored.

    Raises:
        LeaseHeldError: A replay of the stream is running.
        FrazilError: The topic does not exist, the stream reads it, or the table's rows lack coordinates.
    """
    began = time.monotonic()
    refuse_own_topic(spec, topic)
    every, newest = without_dropped(with_named_tables(spec, catalog), catalog), coordinator_stamp(spec, catalog)
    if spec.route is not None:
        refuse_parked(spec, newest.parked if newest else ())
        refuse_gone(every, catalog, newest.targets if newest else ())
    # Tables with their own columns exist, or the stream itself creates them.
    ensure_tables(every if spec.own_columns else spec, catalog)
    spec, request = every, request.with_tables_of(catalog)
    corrected = request.corrected(spec)
    refuse_other_tables(spec, corrected)
    refuse_unknown_rows(spec, catalog.load_table(spec.table.name))
    null_columns = columns_left_null(spec, catalog, request)
    taken = as_stream(corrected, topic)
    with (
        replay_session(spec, settings, catalog),
        open_queue(taken, spec, settings, catalog, topic) as (stream, kafka),
        TopicReader(settings.kafka, "frazil-replay") as reader,
    ):
        task = QueueTask(spec, corrected, reader, schema_lookup(corrected, settings))
        runner = QueueRunner(stream, kafka, task)
        ends = {p: end for p, end in stream.log.latest.items() if p.topic == topic}
        pace = request.pace(spec, MAX_RECORDS)
        counts = import_batches(runner, task.size, stream.begin.offsets, ends, pace, on_progress)
        return QueueResult(
            spec.stream,
            topic,
            *astuple(counts),
            seconds=time.monotonic() - began,
            null_columns=null_columns,
            unknown_fields=runner.unknown_fields,
        )


def refuse_own_topic(spec: StreamSpec, topic: str) -> None:
    """Raise if the queue is one of the stream's own topics.

    Raises:
        FrazilError: It is one.
    """
    if spec.source.reads(topic):
        raise FrazilError(
            f"stream {spec.stream}: topic {topic} is one that the stream reads itself: its records land anyway.",
            fix="name the topic of errors.deadletterqueue.topic.name in the connector's configuration",
        )


def refuse_unknown_rows(spec: StreamSpec, sink: Table) -> None:
    """Raise unless the table's rows have their coordinates.

    Raises:
        FrazilError: They lack them.
    """
    if not spec.kafka_columns.locate_rows_of(sink.schema()):
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name} has no Kafka columns, so it is unknown which records of "
            "the queue it has already.",
            fix="add topic, partition, offset and timestamp, as table.kafka_columns names them, or take the queue into "
            "a stream with a table of its own",
        )


def next_end(at: Positions, ends: Positions, most: int) -> dict[TopicPartition, int]:
    """End offsets of the next batch from `at` with at most so many records."""
    end, room = dict(at), most
    for partition, last in sorted(ends.items()):
        count = min(room, max(0, last - at.get(partition, 0)))
        end[partition] = at.get(partition, 0) + count
        room -= count
    return end


def left_of(at: Positions, ends: Positions) -> int:
    """Number of records left to import from `at` on."""
    return sum(max(0, end - at.get(partition, 0)) for partition, end in ends.items())


def import_batches(
    runner: QueueRunner,
    size: BatchSize,
    begin: Positions,
    ends: Positions,
    pace: Pace,
    on_progress: Callable[[ReplayProgress], None],
) -> QueueCounts:
    """Import all records of a queue from `begin` to `ends`, batch by batch."""
    at, counts, batch, total = dict(begin), QueueCounts(), 0, left_of(begin, ends)
    while left_of(at, ends):
        pace.wait(counts.read)
        end = next_end(at, ends, min(pace.batch, size.most))
        nothing: Any = None
        runner.run(nothing, batch, end)
        counts += runner.counts
        at, batch = end, batch + 1
        on_progress(ReplayProgress(total, total - left_of(at, ends), counts.landed, counts.dead))
    return counts


def _wait(seconds: float) -> bool:
    """Sleep; always False, as only a signal ends a command."""
    time.sleep(seconds)
    return False


class QueueRunner(BatchRunner):
    """Runs batches like a driver, with tasks that need no Spark.

    Attributes:
        counts: Counts of the newest batch.
        unknown_fields: Records of all batches by the path of a field without a column.
    """

    def __init__(self, stream: OpenStream, kafka: KafkaLog, task: QueueTask) -> None:
        super().__init__(stream, kafka, _wait)
        self.counts: QueueCounts = QueueCounts()
        self.unknown_fields: dict[str, int] = {}
        self._task: QueueTask = task

    def run(self, frame: Any, batch: int, end: dict[TopicPartition, int]) -> Any:
        self.counts = QueueCounts()
        done = super().run(frame, batch, end)
        count_unknown_fields(self.unknown_fields, {path: met.records for path, met in done.unknown_fields.items()})
        return done

    def _run_tasks(
        self, frame: Any, batch: int, ranges: Ranges, needs: dict[str, TargetNeed], survey: bool
    ) -> TaskResults:
        stream = self._stream
        # Repeated tasks have to see what the previous attempt has landed.
        results, self.counts = self._task.run(
            ranges,
            {name: target.table for name, target in stream.targets.items()},
            needs,
            decided=self._decided(needs),
            first_seen=datetime.now(UTC),
            batch_time=stream.batch_time,
            file_prefix=f"connect-{stream.epoch}-{batch}-{uuid.uuid4().hex[:8]}",
        )
        return results

    def _refuse_unaccounted(self, results: TaskResults, ranges: Ranges, needs: dict[str, TargetNeed]) -> None:
        """Raise if a batch does not add up; records of a queue may also be known already, or left to the stream."""
        counts = self.counts
        became = counts.landed + counts.dead + counts.known + counts.tombstones + counts.left
        # The run that committed a table's rows has counted them.
        if all(need.whole for need in needs.values()) and counts.read != became:
            raise unaccounted(
                self._stream.spec.stream,
                f"of {counts.read:,} records of the queue {counts.landed:,} landed, {counts.dead:,} are dead letters, "
                f"{counts.known:,} are known, {counts.tombstones:,} are tombstones and {counts.left:,} are left to the "
                f"stream, which is {became:,} in all",
            )

    def _decided(self, needs: dict[str, TargetNeed]) -> int | None:
        """Number of records that may fail in a batch which the main table of a routed stream has; None otherwise.

        It is the number that failed at first; records that are dead letters already are left out of a re-execution.
        """
        stream, newest = self._stream, self._stream.anchor.newest
        if newest is None or stream.spec.route is None or not needs[stream.anchor.name].nothing:
            return None
        letters = stream.dead_letters.name
        if needs[letters].nothing:
            return 0
        return newest.rows.get(letters, 0) if newest.failed is None else newest.failed


def dry_run_queue(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    topic: str,
    request: ReplayRequest,
    *,
    on_progress: Callable[[ReplayProgress], None] = lambda progress: None,
) -> QueueResult:
    """Find out the fate of records in a topic of Connect's dead letters that were not imported before.

    A record that is in the queue twice, more than some thousands apart, is counted twice.

    Raises:
        FrazilError: As `import_queue`; also if the stream has no tables yet.
    """
    began = time.monotonic()
    refuse_own_topic(spec, topic)
    spec, request = without_dropped(with_named_tables(spec, catalog), catalog), request.with_tables_of(catalog)
    refuse_parked(spec, parked_tables(spec, catalog))
    for name in spec.target_names:
        if not catalog.table_exists(name):
            raise FrazilError(f"stream {spec.stream}: table {name} does not exist.", fix=f"frazil run {spec.stream}")
    tables = {name: stream_table(catalog, spec, name) for name in spec.target_names}
    refuse_unknown_rows(spec, tables[spec.table.name])
    corrected = request.corrected(spec)
    refuse_other_tables(spec, corrected)
    null_columns = columns_left_null(spec, catalog, request)
    unknown_fields: dict[str, int] = {}
    log = KafkaLog(settings.kafka).state(as_stream(corrected, topic).source)
    refuse_missing(log, topic, settings)
    stamps = {name: history(table.metadata, queue_id(spec.stream)).newest for name, table in tables.items()}
    taken = restart_positions(target_positions(stamps, spec.coordinator))
    at = {p: max(start, taken.get(p, 0)) for p, start in log.earliest.items() if p.topic == topic}
    ends = {p: end for p, end in log.latest.items() if p.topic == topic}
    total, counts, reasons = left_of(at, ends), QueueCounts(), Reasons()
    with TopicReader(settings.kafka, "frazil-replay") as reader:
        task = QueueTask(spec, corrected, reader, schema_lookup(corrected, settings))
        while left_of(at, ends):
            end = next_end(at, ends, task.size.most)
            ranges = {partition: OffsetRange(at[partition], last) for partition, last in end.items()}
            for outcome in task.process(ranges, tables):
                counts += outcome.counts
                count_unknown_fields(unknown_fields, outcome.unknown_fields)
                for failure in outcome.failures:
                    reasons.add(failure, outcome.fetched.place(failure.row))
            at = end
            on_progress(ReplayProgress(total, total - left_of(at, ends), counts.landed, counts.dead))
    return QueueResult(
        spec.stream,
        topic,
        *astuple(counts),
        seconds=time.monotonic() - began,
        dry_run=True,
        reasons=reasons.by_count(),
        null_columns=null_columns,
        unknown_fields=unknown_fields,
    )
