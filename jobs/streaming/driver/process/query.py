"""Spark query of an open stream: starts at the stamps' position, and ends between two batches."""

from __future__ import annotations

import contextlib
import contextvars
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.signals import deferred_signals
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.spark.jvm_calls import allow_token_url
from jobs.clients.state_store.stream_folder import state_store
from jobs.clients.state_store.table_health import table_part
from jobs.config.documents.units import format_duration
from jobs.config.services.kafka_options import planner_options
from jobs.config.services.security import java_options
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import BatchDone
from jobs.streaming.driver.process.batch_pace import ByteBound, pause_after, poll_delay
from jobs.streaming.driver.watch.watches import HealthWatch
from jobs.tables.commit.stamp.offsets import (
    Positions,
    TopicPartition,
    from_spark_offsets,
    spark_offsets,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession


def kafka_source_options(
    spec: StreamSpec, kafka: KafkaSettings, begin: Positions, topics: list[str], *, drain: bool, most: int | None = None
) -> dict[str, str]:
    """Options for `spark.readStream.format("kafka")`; they hold the password, so they are never logged.

    Args:
        begin: First offset of every partition of every subscribed topic; Spark requires all of them.
        topics: The subscribed topics that exist.
        most: Most records of a batch; None: as in the stream's file.
        drain: Whether to read what exists and end, without waiting for more.
    """
    # The spec's own pattern is never used: Spark applies Java's rules, and takes each topic in which it *finds* a
    # match. The topics are those that the spec means, by name; the next query takes new ones.
    subscription = (
        {"subscribePattern": f"^(?:{'|'.join(map(re.escape, topics))})$"}
        if spec.source.topics_pattern is not None
        else {"subscribe": ",".join(topics)}
    )
    kafka = kafka.with_options(spec.source.options)
    told = {f"kafka.{key}": value for key, value in planner_options(kafka.options, spec.stream).items()}
    security = {f"kafka.{key}": value for key, value in java_options(kafka.security).items()}
    most = most or spec.source.max_records_per_batch
    waiting: dict[str, str] = {}
    if not drain and spec.source.min_records_per_batch and spec.source.max_delay:
        waiting = {
            "minOffsetsPerTrigger": str(min(spec.source.min_records_per_batch, most)),
            "maxTriggerDelay": format_duration(spec.source.max_delay),
        }
    return {
        **told,
        "kafka.bootstrap.servers": kafka.require_bootstrap(),
        "kafka.isolation.level": kafka.isolation,
        **subscription,
        "startingOffsets": spark_offsets(begin),
        "maxOffsetsPerTrigger": str(most),
        **waiting,
        # Spark then fails if records are missing, and the stream's own rules decide what that means.
        "failOnDataLoss": "true",
        **security,
    }


POLL_SECONDS = 0.25
_GAPS = 10


class _EndAsked(Exception):
    """Keeps Spark from starting another batch."""


class _BatchEnded(Exception):
    """Replaces an error of a batch for Spark; `StreamQuery.wait` raises the error itself."""


class StreamQuery:
    """One query, from its start to its end.

    Spark's checkpoint is scratch: the query begins at `stream.begin`, and the stamps record its end. So it is ended by
    refusing its next batch.

    Args:
        bound: Most records of a batch; None: as in the stream's file. It gets the size of every batch.
        drain: Whether to read what the topics hold now, then end; otherwise the spec's trigger decides.
        on_begin: Called when a batch begins; returns the time through which the stream is complete, milliseconds since
            1970.
        on_batch: Called with the outcome of a batch, and the stream's position after it.
    """

    def __init__(
        self,
        stream: OpenStream,
        kafka: KafkaLog,
        *,
        drain: bool,
        bound: ByteBound | None = None,
        poll_seconds: float = POLL_SECONDS,
        on_batch: Callable[[BatchDone, dict[TopicPartition, int]], None],
        on_begin: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._stream: OpenStream = stream
        self._drain: bool = drain
        self._bound: ByteBound = bound or ByteBound(stream.spec.source)
        self._most: int = self._bound.records()
        self._poll_seconds: float = poll_seconds
        self._on_begin: Callable[[], int | None] = on_begin
        self._on_batch: Callable[[BatchDone, dict[TopicPartition, int]], None] = on_batch
        self._asked: threading.Event = threading.Event()
        # Set if the next batch may begin without a pause; that batch clears it.
        self._hastened: threading.Event = threading.Event()
        self._runner: BatchRunner = BatchRunner(stream, kafka, self._asked.wait)
        # A driver that has lost the stream would delete its successor's checkpoint.
        stream.lease.verify()
        self._checkpoint: Path = stream.folder.new_checkpoint()
        self._failure: BaseException | None = None
        self._in_batch: threading.Lock = threading.Lock()
        # Between the end of a pause and the next batch, Spark writes its logs and asks Kafka. This is the least time it
        # took lately, for batches whose records existed already.
        self._resumed: float | None = None
        self._between: deque[float] = deque(maxlen=_GAPS)
        self._query: Any = None
        self._spark_context: SparkContext | None = None
        self._health: HealthWatch = HealthWatch(
            stream.spec.stream,
            stream.spec.trigger,
            lambda: table_part(state_store(stream.settings), stream.anchor.uuid),
        )
        # Spark calls from its own threads.
        self._context: contextvars.Context = contextvars.copy_context()

    @property
    def asked_to_end(self) -> bool:
        """Whether its end was requested; otherwise a query that has ended has read everything."""
        return self._asked.is_set()

    @property
    def outgrown(self) -> bool:
        """Whether another query has to go on, with another bound."""
        return self._bound.outgrown(self._most)

    @property
    def id(self) -> str | None:
        """Spark's id of the query, once it is started."""
        return str(self._query.id) if self._query else None

    def tasks_ended(self) -> tuple[int, int] | None:
        """Its newest job in Spark, and the number of that job's finished tasks; None before the first."""
        query, context = self._query, self._spark_context
        if query is None or context is None:
            return None
        tracker = context.statusTracker()
        jobs = tracker.getJobIdsForGroup(str(query.runId))
        info = tracker.getJobInfo(max(jobs)) if jobs else None
        stages = [stage for each in (info.stageIds if info else ()) if (stage := tracker.getStageInfo(each))]
        return (max(jobs), sum(stage.numCompletedTasks for stage in stages)) if jobs else None

    def cancel(self) -> None:
        """Cancel Spark's work for the present batch, which fails; call it once the end was requested."""
        query, context = self._query, self._spark_context
        if query is not None and context is not None:
            context.cancelJobGroup(str(query.runId))

    def waits_for(self) -> str | None:
        """What the present batch has been waiting for, as a sentence; None if nothing."""
        return self._runner.waits.message()

    def start(self, spark: SparkSession) -> None:
        """Start the query; batches run in Spark's thread from now on."""
        spec, stream = self._stream.spec, self._stream
        self._spark_context = spark.sparkContext
        delay = poll_delay(spec)
        if self._poll_seconds > POLL_SECONDS:
            delay = max(delay, timedelta(seconds=self._poll_seconds))
        spark.conf.set("spark.sql.streaming.pollingDelay", f"{delay // timedelta(milliseconds=1)}ms")
        security = stream.settings.kafka.security
        allow_token_url(spark, security.token_url if security else None)
        options = kafka_source_options(
            spec,
            stream.settings.kafka,
            stream.begin.offsets,
            sorted(stream.log.topics),
            drain=self._drain,
            most=self._most,
        )
        writer = (
            spark.readStream.format("kafka")
            .options(**options)
            .load()
            .writeStream.queryName(spec.stream)
            .foreachBatch(lambda frame, batch: self._context.copy().run(self._land, frame, batch))
            # Not a URI: Spark would take an escaped space or plus as part of the name.
            .option("checkpointLocation", f"file://{self._checkpoint}")
        )
        # Spark's processing time is not used, as it waits for its next tick even if a full batch exists.
        writer = writer.trigger(availableNow=True) if self._drain else writer.trigger(processingTime="0 seconds")
        with deferred_signals():
            self._query = writer.start()

    def ask_to_end(self) -> None:
        """Let the present batch finish, and begin no other; `wait` ends the query."""
        self._asked.set()
        self._hastened.set()

    def hasten(self) -> None:
        """Let the next batch begin without the trigger's pause."""
        self._hastened.set()

    def wait(self, seconds: float) -> bool:
        """Wait up to some seconds for the end of the query; returns whether it has ended.

        Raises:
            PySparkException, Py4JError: The query failed; the topics' state shows why.
            FencedError: The stream was lost, whatever error the query had.
        """
        query = self._query
        assert query is not None
        deadline = time.monotonic() + seconds
        while True:
            try:
                # A signal in the middle of a call to the JVM leaves that connection with an answer that nobody reads.
                with deferred_signals():
                    if self._asked.is_set() and self._in_batch.acquire(blocking=False):
                        # No batch is running, and none begins any more.
                        self._in_batch.release()
                        _stop(query)
                        if self._failure is not None and not isinstance(self._failure, _EndAsked):
                            raise self._failure
                        return True
                    if query.awaitTermination(self._poll_seconds):
                        return True
            except Exception as problem:
                if isinstance(self._failure, _EndAsked):
                    return True
                failure = self._failure or problem
                if not isinstance(failure, FrazilError):
                    self._refuse_lost()
                raise failure from None
            if time.monotonic() >= deadline:
                return False

    def between_batches(self, act: Callable[[], None]) -> None:
        """Call something while no batch runs, unless one is running; none begins meanwhile."""
        if self._in_batch.acquire(blocking=False):
            try:
                act()
            finally:
                self._in_batch.release()

    def run(self, spark: SparkSession) -> None:
        """Start the query and wait for its end, however long that takes; an interrupt stops it at once."""
        try:
            self.start(spark)
            while not self.wait(3600.0):
                pass
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Stop the query at once if it still runs; never raises."""
        self.ask_to_end()
        if self._query is not None:
            with deferred_signals():
                _stop(self._query)

    def _refuse_lost(self) -> None:
        """Raise if the stream was lost: a successor deletes the checkpoint, and Spark would blame a missing file."""
        # A store that does not answer proves nothing.
        with contextlib.suppress(OSError):
            self._stream.lease.verify()

    def _land(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        if self._resumed is not None:
            self._between.append(began - self._resumed)
        with self._in_batch:
            try:
                if self._asked.is_set():
                    raise _EndAsked
                self._hastened.clear()
                self._stream.complete_ms = self._on_begin()
                end = _end_of(self._checkpoint, batch)
                done = self._runner.run(frame, batch, end)
                self._bound.seen(done.fetched, done.fetched_bytes)
                self._on_batch(done, end)
                step("before_spark_notes")
            except BaseException as problem:
                self._failure = problem
                # Spark writes errors raised here to its own log, even with secrets that other libraries quote.
                raise _BatchEnded(f"batch {batch} ended with {type(problem).__name__}") from None
        if self.outgrown:
            # The bound is an option of the query.
            self.ask_to_end()
        if not self._drain:
            between = min(self._between, default=0.0)
            spec, red = self._stream.spec, self._health.red()
            self._pause(pause_after(spec, done, time.monotonic() - began, between, self._most, red=red))
            self._resumed = time.monotonic() if sum(done.lag.values()) else None

    def _pause(self, seconds: float) -> None:
        if not self._asked.is_set():
            self._hastened.wait(seconds)


def _stop(query: Any) -> None:
    # Two attempts: a JVM connection whose call was interrupted fails once, and is replaced.
    for _ in range(2):
        with contextlib.suppress(Exception):
            if query.isActive:
                query.stop()
            return


def _end_of(checkpoint: Path, batch: int) -> dict[TopicPartition, int]:
    """End of a batch's range, from Spark's offset log: version, metadata, one line per source."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
    if lines[0] != "v1" or len(lines) != 3:
        raise FrazilError(
            f"Spark's offset log has version {lines[0]!r} and {len(lines) - 2} sources; frazil reads v1 with one.",
            fix="install the pyspark that requirements.lock names",
        )
    return from_spark_offsets(lines[2])
