"""Batch of a stream: plans it, runs its tasks, checks the counts, and commits it on every target."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.clients.kafka.metadata import KafkaLog
from jobs.streaming.driver.batch.batch_commit import BatchCommit, batch_stamp
from jobs.streaming.driver.batch.retry import error_text, once_more_with_new_keys, with_retries
from jobs.streaming.driver.batch.tasks import PreparedBatch, run_tasks, slice_plan
from jobs.streaming.driver.batch.tolerance import Breaker
from jobs.streaming.driver.context.completeness import ObservedEnds
from jobs.streaming.driver.context.continuity import Continuity
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.progress import BatchWaits
from jobs.streaming.driver.context.results import BatchDone, TaskResults, drop_files
from jobs.streaming.driver.context.second_run import (
    as_before_it_was_parked,
    decided_schemas,
    half_committed,
    refuse_other_failures,
    tell_other_decisions,
    time_as_decided,
    unknown_as_decided,
)
from jobs.streaming.driver.tables.lane_tables import LaneTables
from jobs.streaming.driver.tables.new_tables import NewTables
from jobs.streaming.driver.tables.schema_runs import SchemaRuns
from jobs.tables.commit.protocol.parked_target import ParkedTarget
from jobs.tables.commit.stamp.errors import GapError, ToleranceError
from jobs.tables.commit.stamp.log_state import check_identity
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Ranges,
    TopicPartition,
    pointwise_max,
    spark_offsets,
)
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.target_positions import TargetNeed, need

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

MAX_RUNS = 5


class BatchRunner:
    """Runs the batches of one open stream, one after another.

    Args:
        wait: Waits for some seconds before a retry; returns True at once if the driver is to end.
    """

    def __init__(
        self,
        stream: OpenStream,
        kafka: KafkaLog,
        wait: Callable[[float], bool] = lambda _: True,
        waits: BatchWaits | None = None,
    ) -> None:
        self._stream: OpenStream = stream
        self._kafka: KafkaLog = kafka
        self._wait: Callable[[float], bool] = wait
        self.waits: BatchWaits = waits or BatchWaits()
        self._commit: BatchCommit = BatchCommit(stream, self.waits)
        self._breaker: Breaker = Breaker(stream)
        self._continuity: Continuity = Continuity(stream, kafka)
        self._schema_runs: SchemaRuns = SchemaRuns(stream)
        self._new_tables: NewTables = NewTables(stream)
        self._lane_tables: LaneTables = LaneTables(stream)
        seen_ms = stream.log.seen_ms
        self._observed_ends: ObservedEnds | None = (
            None if seen_ms is None else ObservedEnds(seen_ms, stream.log.watermarks)
        )
        self._complete: dict[TopicPartition, int] = dict(stream.begin.offsets)
        # Counts of the present batch that the coordinator has committed while tasks ran again for other targets.
        self._counted: Counts = Counts()

    def run(self, frame: DataFrame, batch: int, end: dict[TopicPartition, int]) -> BatchDone:
        """Land one batch on every target that lacks it.

        Args:
            frame: The batch as planned by Spark; its rows are not read.
            end: Next offsets after the batch, of every partition.

        Raises:
            StreamStopped, FencedError: Nothing of the batch is committed, unless the message says so.
        """
        began = time.monotonic()
        self._counted = Counts()
        done = BatchDone(batch, Counts(), 0.0, 0.0, 0.0, {}, None)
        ranges = self._ranges(end)
        newest = self._stream.anchor.newest
        start = newest.start if newest else {}
        if half := half_committed(ranges, self._stream.positions, self._stream.anchor.name, start):
            done = self._land(frame, batch, half, done)
        if half != end:
            done = self._land(frame, batch, end, done)
        return replace(done, counts=done.counts + self._counted, seconds=time.monotonic() - began)

    def _land(self, frame: DataFrame, batch: int, end: dict[TopicPartition, int], before: BatchDone) -> BatchDone:
        """Land a batch up to `end`; the result includes the dead letters and files of its part `before`."""
        ranges, done = self._ranges(end), before
        for _ in range(MAX_RUNS):
            needs = {name: need(ranges, self._stream.positions[name]) for name in self._stream.targets}
            self._refuse_gaps(needs)
            if all(each.nothing for each in needs.values()):
                break
            if (finished := self._attempt(frame, batch, ranges, end, needs)) is not None:
                done = finished.after(before)
                break
        else:
            raise FrazilError(
                f"stream {self._stream.spec.stream}: batch {batch} was run {MAX_RUNS} times and each time the table "
                "had changed meanwhile.",
                fix="let the other writer finish, then start the stream again",
            )
        self._complete = dict(end)
        for name in self._stream.targets:
            self._stream.positions[name] = pointwise_max([self._stream.positions[name], end])
        return done

    def _ranges(self, end: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
        fresh = [partition for partition in end if partition not in self._complete]
        starts = self._complete | (self._kafka.earliest(fresh) if fresh else {})
        return {partition: OffsetRange(min(starts[partition], offset), offset) for partition, offset in end.items()}

    def _refuse_gaps(self, needs: dict[str, TargetNeed]) -> None:
        for name, each in needs.items():
            if each.gaps:
                raise GapError(
                    f"stream {self._stream.spec.stream}: table {name} is behind the batch, so records would be "
                    f"skipped: {'; '.join(map(str, each.gaps))}. Spark's checkpoint has "
                    f"{spark_offsets(self._complete)}, the table {spark_offsets(self._stream.positions[name])}.",
                    fix=f"frazil run {self._stream.spec.stream}, which begins again at the tables' position",
                )

    def _attempt(
        self,
        frame: DataFrame,
        batch: int,
        ranges: Ranges,
        end: dict[TopicPartition, int],
        needs: dict[str, TargetNeed],
    ) -> BatchDone | None:
        """Run the tasks once and commit their files; None if a table changed so that the tasks have to run again."""
        stream = self._stream
        started = time.monotonic()

        def failed(problem: Exception, pause: float) -> None:
            said = error_text(problem, stream.settings)
            log.warning("batch %d: tries again in %.1f s after %s", batch, pause, said)
            self.waits.retrying(f"batch {batch} is tried again after {said}")

        try:
            made = with_retries(
                lambda: once_more_with_new_keys(
                    lambda: self._prepare(frame, batch, ranges, end, needs), stream.targets.values(), f"batch {batch}"
                ),
                stream.spec.errors.retry,
                wait=self._wait,
                on_failure=failed,
            )
        finally:
            self.waits.retrying(None)
        results, latest, now = made.results, made.ends.latest, made.observed_ends
        tell_other_decisions(stream, ranges, needs, results)
        stamp = batch_stamp(stream, batch, ranges, end, made, self._observed_ends)
        if self._observed_ends is None or self._observed_ends.reached(end):
            self._observed_ends = now
        pending = self._commit.pending(stamp, ranges, made, needs)
        if not self._commit.commit(pending, results, end):
            if stream.anchor.name in self._commit.committed:
                self._counted += results.counts()
            return None
        parked = {name for name, target in stream.targets.items() if isinstance(target, ParkedTarget)}
        return BatchDone(
            batch,
            results.counts(),
            seconds=0.0,
            task_seconds=made.tasks_ended - started,
            commit_seconds=time.monotonic() - made.tasks_ended,
            lag={p: max(0, latest.get(p, at) - at) for p, at in end.items()},
            valid_through_ms=stamp.valid_through_ms,
            reasons=results.summed(lambda tally: tally.reasons),
            parked={name: rows for name, rows in results.rows().items() if name in parked},
            warned=results.summed(lambda tally: tally.warned),
            unknown_fields=results.unknown_fields(),
            files=sum(len(files) for files in results.files.values()),
            letters=results.letters(stream.spec.targets),
            causes=results.causes(),
            undecided=made.ends.undecided(),
            watermark_ms=stream.watermark_ms,
            events=results.events(),
            fetched=(fetched := results.fetched())[0],
            fetched_bytes=fetched[1],
        )

    def _prepare(
        self,
        frame: DataFrame,
        batch: int,
        ranges: Ranges,
        end: dict[TopicPartition, int],
        needs: dict[str, TargetNeed],
    ) -> PreparedBatch:
        """Do all of a batch that comes before records and commits; a failure here leaves nothing behind."""
        for target in (stream := self._stream).targets.values():
            target.renew_access()
        decided_ms = time_as_decided(stream, needs)
        stream.batch_ms = time.time_ns() // 1_000_000 if decided_ms is None else decided_ms
        tasks = partial(self._agreed, partial(self._run_tasks, frame, batch, ranges, needs))
        tasks = self._new_tables.around(tasks, ranges, needs)
        if (decided := decided_schemas(stream, needs)) is None:
            self._lane_tables.ensure(ranges, needs)
            seen, results = self._schema_runs.run(tasks, batch)
        else:
            self._lane_tables.look(ranges)
            run_again = partial(self._schema_runs.run_again, tasks, decided, needs, batch)
            seen, results = as_before_it_was_parked(stream, ranges, needs, run_again)
        seen = self._new_tables.seen | seen
        tasks_ended = time.monotonic()
        step("after_tasks")
        try:
            results.refuse_unwritten(stream.spec.stream)
            self._refuse_unaccounted(results, ranges, needs)
            refuse_other_failures(stream, ranges, needs, results)
            if stream.schemas:
                stream.schemas.learn(results.schemas)
                if not unknown_as_decided(stream, needs):
                    stream.schemas.refuse_all_unknown(results.counts(), results.summed(lambda tally: tally.reasons))
            self._judge(results)
            self._check_topics(end)
            # The clock is read before the log's end: records that arrive between the two do not count as landed.
            seen_ms = time.time_ns() // 1_000_000
            ends = self._kafka.ends(end)
            self._continuity.check(ends, results)
        except FrazilError:
            # Nothing is recorded or committed yet, so nobody can ever reference these files.
            drop_files(results, stream.targets, keep=frozenset())
            raise
        return PreparedBatch(seen, results, tasks_ended, ends, seen_ms)

    def _agreed(self, tasks: Callable[[bool], TaskResults], survey: bool) -> TaskResults:
        """Run tasks; repeat them if one met a schema for which another one had asked the registry too early.

        Otherwise records of one schema would be rows in one task and dead letters in another, and no stamp could tell.
        """
        for _ in range(MAX_RUNS - 1):
            results, schemas = tasks(survey), self._stream.schemas
            if schemas is None or results.unmet.isdisjoint(results.schemas):
                return results
            drop_files(results, self._stream.targets, keep=frozenset())
            schemas.learn(results.schemas)
        return tasks(survey)

    def _refuse_unaccounted(self, results: TaskResults, ranges: Ranges, needs: dict[str, TargetNeed]) -> None:
        anchor = self._stream.anchor.name
        results.refuse_unaccounted(self._stream.spec.stream, ranges, self._stream.positions[anchor], anchor)

    def _judge(self, results: TaskResults) -> None:
        try:
            self._breaker.check(results)
        except ToleranceError as stop:
            topic, tolerance = self._stream.spec.errors.topic, self._stream.spec.errors.tolerance
            if topic is not None and topic.stops and tolerance == "none":
                said = f"{stop.message} It is not put into topic {topic.name}: topic.stops has no effect any more."
                raise type(stop)(said, fix=stop.fix, failed=stop.failed, read=stop.read) from None
            raise

    def _check_topics(self, end: dict[TopicPartition, int]) -> None:
        now = self._kafka.identities({partition.topic for partition in end})
        check_identity(self._stream.spec.stream, self._stream.log.topics, now)
        self._stream.log.topics.update(now)

    def _run_tasks(
        self, frame: DataFrame, batch: int, ranges: Ranges, needs: dict[str, TargetNeed], survey: bool
    ) -> TaskResults:
        # Tasks cannot ask the catalog for credentials, and those of a first run may expire before a second one.
        for target in self._stream.targets.values():
            target.renew_access()
        plan = slice_plan(self._stream, batch, ranges, needs, survey=survey)
        return run_tasks(self._stream, plan, ranges, frame.sparkSession.sparkContext, self.waits.retrying)
