"""Runner of a stream for months: opens it, runs its query, and begins again after transient failures."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.full_disk import is_full
from jobs.base.system.signals import deferred_signals
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.group_offsets import GroupOffsets
from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError, quick_kafka
from jobs.clients.registry.failures import RegistryError
from jobs.clients.registry.known_schemas import RegistryRemadeError
from jobs.clients.spark.end import jvm_is_gone
from jobs.config.redaction import redacted
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.driver.batch.retry import is_unavailable, query_failure_text
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import BatchDone
from jobs.streaming.driver.context.source_topics import TopicsAwaitedError
from jobs.streaming.driver.context.unknown_fields import UnknownFieldsRecord
from jobs.streaming.driver.opening.opening import decide_start, opened
from jobs.streaming.driver.process.batch_pace import ByteBound
from jobs.streaming.driver.process.flush import FlushWatch
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.driver.process.idle_watermark import IdleWatermark
from jobs.streaming.driver.process.metrics import MetricsServer
from jobs.streaming.driver.process.outbox_thread import OutboxState, OutboxThread, outbox_thread
from jobs.streaming.driver.process.query import POLL_SECONDS, StreamQuery
from jobs.streaming.driver.tables.first_records import RecordsAwaitedError
from jobs.streaming.driver.watch.lag import ANSWER_SECONDS, LagWatch
from jobs.streaming.driver.watch.watches import JvmWatch, SecretWatch, secret_files
from jobs.streaming.supervision.documents.control_request import ControlReader
from jobs.streaming.supervision.documents.heartbeat import LastError
from jobs.streaming.supervision.documents.scrape_target import announced
from jobs.tables.commit.stamp.offsets import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

_LONGEST_RETRY_SECONDS = 60.0
_FRUITLESS_QUERIES = 3
# A refused login may mean that the secret was changed at the service, and not yet in its file here.
_SECRET_SECONDS = 120.0
_NO_TOPIC_SECONDS = 10.0
# Each look is a call to the JVM, and fifty streams may look.
SHARED_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class SharedDriver:
    """What a stream uses of a driver that runs several streams."""

    metrics_url: str


class StreamRunner:
    """Runs one stream until it is asked to end.

    If Kafka, the catalog or a disk is unavailable, the stream is reopened after growing pauses, with the JVM kept warm.

    Args:
        get_spark: Returns the same session each time; called when there is something to read.
        shared: Shared part of a group's driver, which runs other streams as well; None for a driver of one stream.

    Attributes:
        finished: Whether everything was read, and the stream reads only on request.
    """

    def __init__(
        self,
        spec: StreamSpec,
        settings: Settings,
        heartbeat: HeartbeatThread,
        control: ControlReader,
        get_spark: Callable[[], SparkSession],
        shared: SharedDriver | None = None,
    ) -> None:
        self.finished: bool = False
        self.query: StreamQuery | None = None
        self._shared: SharedDriver | None = shared
        self._spec: StreamSpec = spec
        self._settings: Settings = settings
        self._heartbeat: HeartbeatThread = heartbeat
        self._control: ControlReader = control
        self._get_spark: Callable[[], SparkSession] = get_spark
        self._group: GroupOffsets | None = None
        self._letters: OutboxThread | None = None
        self._unknown: UnknownFieldsRecord | None = None
        self._retries: int = 0
        self._away_since: datetime = datetime.now(UTC)
        self._watch: JvmWatch | None = None
        self._bound: ByteBound = ByteBound(spec.source)
        self._flush: FlushWatch = FlushWatch(heartbeat)
        self._secrets: SecretWatch = SecretWatch(())

    def run(self) -> None:
        """Run until the end is requested.

        Raises:
            FencedError, LeaseHeldError: Another driver has the stream.
        """
        with contextlib.ExitStack() as watching:
            if self._shared is not None:
                url = self._shared.metrics_url
            else:
                url = watching.enter_context(MetricsServer(lambda: (self._heartbeat.current(),))).url
                watching.enter_context(announced(self._settings, self._spec.stream, url))
            watching.callback(lambda: self._watch.end() if self._watch else None)
            self._heartbeat.change(metrics_url=url)
            while not self.finished and self._control.now() != "end":
                if self._control.now() == "pause":
                    self._heartbeat.change(state="paused")
                    self._control.wait_while("pause")
                    continue
                try:
                    self._run_open()
                except Exception as problem:
                    if not is_unavailable(problem) and not self._secret_changes(problem):
                        raise
                    self._wait_for(problem)
        if self._control.superseded():
            raise FrazilError(f"stream {self._spec.stream}: a later launch has taken over.")

    def _run_open(self) -> None:
        """Open the stream and run its queries until the end is requested."""
        settings = self._settings
        self._secrets = SecretWatch(secret_files(self._spec, settings))
        of_stream = settings.kafka.with_options(self._spec.source.options)
        kafka, bootstrap = KafkaLog(of_stream), of_stream.require_bootstrap()
        with connect_catalog(settings) as catalog, opened(self._spec, settings, catalog, kafka) as stream:
            self._heartbeat.change(epoch=stream.epoch)
            self._unknown = UnknownFieldsRecord(stream.folder.store, self._spec.config_hash)
            newest = stream.anchor.newest
            self._heartbeat.work.opened(stream.begin.offsets, stream.recovered, newest.parked if newest else {})
            with (
                LagWatch(self._spec, quick_kafka(of_stream, ANSWER_SECONDS), bootstrap, self._heartbeat.work) as watch,
                self._publishing(settings),
                outbox_thread(stream, settings, self._report_letters) as self._letters,
            ):
                self._run_queries(stream, kafka, watch)
                if self._letters and self.finished:
                    self._letters.finish(settings.kafka.request_timeout.total_seconds())

    def _run_queries(self, stream: OpenStream, kafka: KafkaLog, watch: LagWatch) -> None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        fruitless, decided = 0, True
        while not self.finished and (order := self._control.now()) != "end":
            if self._secrets.changed():
                log.info("a secret has changed in its file: the stream is reopened with it")
                return
            if not decided:
                # The stamps and the topics determine where a query begins; the former query may have begun months ago.
                # They also explain a failure better than the query's error: lost offsets and lost topics stop here.
                decide_start(stream, kafka)
            decided = False
            watch.follow(stream.log)
            if order == "pause" or not stream.begin.offsets:
                self._stand_by(stream, kafka, order == "pause")
                continue
            before = self._heartbeat.work.work(time.time()).batches
            try:
                self._run_query(stream, kafka, watch)
            except (PySparkException, Py4JError) as problem:
                if is_full(problem):
                    raise
                fruitless = 0 if self._heartbeat.work.work(time.time()).batches > before else fruitless + 1
                message = redacted(self._settings, query_failure_text(problem))
                if fruitless >= _FRUITLESS_QUERIES:
                    decide_start(stream, kafka)
                    raise FrazilError(
                        f"stream {self._spec.stream}: the Spark query failed {fruitless} times in a row: {message}",
                        fix=f"read spark.log and driver.log of the stream (`frazil status {self._spec.stream}`)",
                    ) from problem
                log.warning("begins again after: %s", message)
                self._control.wait_while("run", fruitless)

    def _run_query(self, stream: OpenStream, kafka: KafkaLog, watch: LagWatch) -> None:
        """Run one query until it fails, something else is requested, or topics or leaders have changed."""
        heartbeat = self._heartbeat
        idle = IdleWatermark(stream, self._spec.event_time, kafka, heartbeat.work)
        query = self.query = StreamQuery(
            stream,
            kafka,
            drain=not self._spec.continuous,
            bound=self._bound,
            poll_seconds=POLL_SECONDS if self._shared is None else SHARED_POLL_SECONDS,
            on_begin=lambda: heartbeat.work.begun(time.time()),
            on_batch=lambda done, end: self._landed(stream, done, end),
        )
        try:
            query.start(self._session())
            heartbeat.change(state="running", query_id=query.id, error=None)
            steady = time.monotonic() + _LONGEST_RETRY_SECONDS
            while not query.wait(1.0):
                _refuse_lost(stream)
                if watch.away is None:
                    query.between_batches(idle.look)
                waits = query.waits_for()
                self._report_waiting(LastError(waits, "away", time.time(), "frazil validate") if waits else watch.away)
                self._hasten(query, kafka)
                if self._retries and time.monotonic() > steady:
                    self._retries = 0
                    heartbeat.change(retries=0)
                if self._control.now() != "run" or watch.outdated or _remade(stream) or self._secrets.changed():
                    if self._control.now() == "end":
                        heartbeat.change(state="stopping")
                        step("after_stop_asked")
                    query.ask_to_end()
            if problem := _remade(stream):
                raise problem
            self.finished = not query.asked_to_end
        except Exception as problem:
            if jvm_is_gone():
                # A new session in this process would inherit its state; the supervisor starts a fresh process.
                raise FrazilError(
                    f"stream {self._spec.stream}: Spark's JVM has ended: killed, or out of memory.",
                    fix="read spark.log and driver.out of the stream; perhaps raise spark.driver_memory in frazil.yaml",
                ) from problem
            raise
        finally:
            query.abandon()
            heartbeat.work.idle()
            heartbeat.change(query_id=None)

    def _landed(self, stream: OpenStream, done: BatchDone, end: dict[TopicPartition, int]) -> None:
        self._retries = 0
        self._heartbeat.work.done(
            done,
            end,
            time.time(),
            snapshot_id=stream.anchor.snapshot_id,
            dead_letter_snapshot_id=stream.dead_letters.snapshot_id,
            refusals=sum(target.refusals for target in stream.targets.values()),
        )
        if self._unknown:
            self._unknown.add(done.counts.landed, done.unknown_fields, time.time())
        self._heartbeat.change(retries=0)
        self._heartbeat.write()
        if self._group:
            self._group.publish(end)
        counts = done.counts
        if self._letters and done.letters:
            self._letters.wake()
        log.info(
            "batch %d: %d read, %d landed, %d dead, %d tombstones%s in %.1f s, commit %.0f ms",
            *(done.batch, counts.read, counts.landed, counts.dead, counts.tombstones),
            *(f", {counts.filtered} filtered" if counts.filtered else "", done.seconds, done.commit_seconds * 1000),
        )

    def _hasten(self, query: StreamQuery, kafka: KafkaLog) -> None:
        """Cut the pause while a flush still has something to land."""
        if not self._flush.look(lambda: kafka.state(self._spec.source)):
            return
        if self._spec.source.min_records_per_batch is None:
            query.hasten()
        elif not self._flush.hastened(self._heartbeat.work.work(time.time()).batches):
            # Spark itself waits for more records, except in a query's first batch.
            query.ask_to_end()

    def _report_waiting(self, why: LastError | None) -> None:
        """Report a driver whose batch or brokers do not answer as retrying, whatever its query reports."""
        beat = self._heartbeat.current()
        if why is not None and beat.state in ("running", "retrying"):
            why = msgspec.structs.replace(why, message=redacted(self._settings, why.message))
            if beat.state == "running" or beat.error is None or beat.error.message != why.message:
                log.warning("%s", why.message)
                since = why.at if beat.state == "running" else beat.state_since
                self._heartbeat.change(state="retrying", error=why, state_since=since)
        elif why is None and beat.state == "retrying":
            self._heartbeat.change(state="running", error=None)

    def _report_letters(self, state: OutboxState) -> None:
        error = LastError(state.problem, "away", time.time(), state.fix) if state.problem else None
        self._heartbeat.change(unpublished_letters=state.unpublished, outbox_error=error)

    def _stand_by(self, stream: OpenStream, kafka: KafkaLog, paused: bool) -> None:
        """Hold the stream without reading: by an operator's request, or because no topic exists yet."""
        self._heartbeat.change(state="paused" if paused else "running")
        deadline = time.monotonic() + (float("inf") if paused else _NO_TOPIC_SECONDS)
        order = self._control.now()
        while self._control.now() == order and time.monotonic() < deadline:
            _refuse_lost(stream)
            if problem := _remade(stream):
                raise problem
            if not paused:
                self._flush.look(lambda: kafka.state(self._spec.source))
            self._control.wait_while(order, 1.0)

    def _secret_changes(self, problem: Exception) -> bool:
        """Whether a refused login had an outdated secret; a stream that has run waits for a new one."""
        if not isinstance(problem, (KafkaUnavailableError, RegistryError, PermissionError)) or not self._secrets:
            return False
        if not self._secrets.changed(now=True) and self.query is not None:
            message = f"{redacted(self._settings, str(problem))} (waits for another secret in its file)"
            log.warning("%s", message)
            self._heartbeat.change(state="retrying", error=LastError(message, "away", time.time(), None))
            self._secrets.wait(self._control, _SECRET_SECONDS)
        return self._secrets.changed()

    def _wait_for(self, problem: Exception) -> None:
        self._retries += 1
        awaited = isinstance(problem, (TopicsAwaitedError, RecordsAwaitedError))
        longest = _NO_TOPIC_SECONDS if awaited else _LONGEST_RETRY_SECONDS
        pause = min(longest, 2.0 ** (self._retries - 1))
        text = problem.message if isinstance(problem, FrazilError) else f"{type(problem).__name__}: {problem}"
        message = redacted(self._settings, text)
        log.warning("unavailable, tries again in %.0f s: %s", pause, message)
        # A driver without brokers reports that minutes before Spark does.
        beat = self._heartbeat.current()
        known = beat.state == "retrying"
        if self._retries == 1:
            self._away_since = datetime.fromtimestamp(beat.state_since if known else beat.beat_wall, UTC)
        if known or self._retries > 1:
            message = f"{message.rstrip('.')} (since {self._away_since:%Y-%m-%d %H:%M:%S} UTC)"
        error = LastError(message, "away", time.time(), getattr(problem, "fix", None))
        if not awaited:
            # The stream is closed, and its lag is no longer queried.
            self._heartbeat.work.lag_unknown(error.at)
        self._heartbeat.change(state="retrying", error=error, retries=self._retries)
        self._control.wait_while("run", pause)

    def _session(self) -> SparkSession:
        session = self._get_spark()
        with deferred_signals():
            context = session.sparkContext
            self._heartbeat.change(application_id=context.applicationId, ui_url=context.uiWebUrl)
            ended = None if self._shared is None else self._tasks_ended
            self._watch = JvmWatch.of(session, self._heartbeat.work, ended, self._watch)
        return session

    def _tasks_ended(self) -> tuple[int, int] | None:
        return self.query.tasks_ended() if self.query is not None else None

    @contextlib.contextmanager
    def _publishing(self, settings: Settings) -> Iterator[None]:
        """Commit positions to the spec's consumer group, if it names one, while the stream is open."""
        group = self._spec.source.group
        kafka = settings.kafka.with_options(self._spec.source.options)
        self._group = GroupOffsets(kafka, group) if group else None
        try:
            yield
        finally:
            if self._group:
                self._group.stop()
            self._group = None


def _remade(stream: OpenStream) -> RegistryRemadeError | None:
    """Finding of the watch of the stream's registry."""
    return stream.schemas.remade if stream.schemas else None


def _refuse_lost(stream: OpenStream) -> None:
    if lost := stream.lease.lost:
        raise lost
