"""Batch of a stream: plan it, run its tasks, decide on the counts, commit it on every target."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.commit.errors import GapError, ToleranceError
from jobs.commit.log_state import check_identity
from jobs.commit.offsets import OffsetRange, Ranges, TopicPartition, pointwise_max, spark_offsets
from jobs.commit.pending_record import Pending, PendingTarget
from jobs.commit.proposals import ProposalOutcome, Seen
from jobs.commit.stamp_fields import Counts
from jobs.commit.stamps import Stamp
from jobs.commit.target_positions import TargetNeed, need
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog
from jobs.state.store import NotWrittenError
from jobs.steps import step
from jobs.stream.batch_stamps import batch_stamp, target_stamp
from jobs.stream.breaker import Breaker
from jobs.stream.completeness import ObservedEnds
from jobs.stream.continuity import Continuity
from jobs.stream.open_stream import OpenStream
from jobs.stream.progress import BatchWaits
from jobs.stream.results import BatchDone, TaskResults, drop_files
from jobs.stream.retry import error_text, with_retries
from jobs.stream.schema_evolution import SchemaEvolution
from jobs.stream.second_run import tell_other_decisions
from jobs.stream.stopped_record import publish_stopped_record
from jobs.stream.tasks import PreparedBatch, run_tasks, slice_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

MAX_RUNS = 5


class BatchRunner:
    """Runs the batches of one open stream, one after another.

    Args:
        stream: The stream, whose positions follow every commit.
        kafka: For identities and log ends.
        wait: Waits so many seconds before something is tried again; returns True at once when the end is asked for.

    Attributes:
        waits: What the batch at hand waits for.
    """

    def __init__(self, stream: OpenStream, kafka: KafkaLog, wait: Callable[[float], bool] = lambda _: True) -> None:
        self._stream: OpenStream = stream
        self._kafka: KafkaLog = kafka
        self._wait: Callable[[float], bool] = wait
        self.waits: BatchWaits = BatchWaits()
        self._breaker: Breaker = Breaker(stream)
        self._continuity: Continuity = Continuity(stream, kafka)
        self._evolution: SchemaEvolution = SchemaEvolution(stream)
        seen_ms = stream.log.seen_ms
        self._observed_ends: ObservedEnds | None = (
            None if seen_ms is None else ObservedEnds(seen_ms, stream.log.watermarks)
        )
        self._complete: dict[TopicPartition, int] = dict(stream.begin.offsets)
        # Of the batch at hand: what an attempt counted whose anchor landed and whose tasks ran again for the others.
        self._counted: Counts = Counts()

    def run(self, frame: DataFrame, batch: int, end: dict[TopicPartition, int]) -> BatchDone:
        """Land one batch on every target that lacks it.

        Args:
            frame: The batch, as Spark has planned it; its rows are not asked for.
            batch: Spark's number of it.
            end: The next offsets after it, of every partition.

        Raises:
            StreamStopped, FencedError: Nothing of the batch is committed, unless the message says so.
        """
        began = time.monotonic()
        self._counted = Counts()
        ranges = self._ranges(end)
        done = BatchDone(batch, Counts(), 0.0, 0.0, 0.0, {}, None)
        for _ in range(MAX_RUNS):
            needs = {name: need(ranges, self._stream.positions[name]) for name in self._stream.targets}
            self._refuse_gaps(needs)
            if all(each.nothing for each in needs.values()):
                break
            if (finished := self._attempt(frame, batch, ranges, end, needs)) is not None:
                done = finished
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
        return replace(done, counts=done.counts + self._counted, seconds=time.monotonic() - began)

    def _ranges(self, end: dict[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
        fresh = [partition for partition in end if partition not in self._complete]
        starts = self._complete | (self._kafka.earliest(fresh) if fresh else {})
        return {partition: OffsetRange(min(starts[partition], offset), offset) for partition, offset in end.items()}

    def _refuse_gaps(self, needs: dict[str, TargetNeed]) -> None:
        for name, each in needs.items():
            if each.gaps:
                raise GapError(
                    f"stream {self._stream.spec.stream}: table {name} stands before the batch, so records would be "
                    f"passed over: {'; '.join(map(str, each.gaps))}. Spark's checkpoint says "
                    f"{spark_offsets(self._complete)}, the table {spark_offsets(self._stream.positions[name])}.",
                    fix=f"frazil run {self._stream.spec.stream}, which begins again where the tables stand",
                )

    def _attempt(
        self,
        frame: DataFrame,
        batch: int,
        ranges: Ranges,
        end: dict[TopicPartition, int],
        needs: dict[str, TargetNeed],
    ) -> BatchDone | None:
        """Run the tasks once and commit what they wrote; None if a table changed so that they have to run again."""
        stream = self._stream
        started = time.monotonic()

        def failed(problem: Exception, pause: float) -> None:
            said = error_text(problem, stream.settings)
            log.warning("batch %d: tries again in %.1f s after %s", batch, pause, said)
            self.waits.retrying(f"batch {batch} is tried again after {said}")

        try:
            made = with_retries(
                lambda: self._prepare(frame, batch, ranges, end, needs),
                stream.spec.errors.retry,
                wait=self._wait,
                on_failure=failed,
            )
        finally:
            self.waits.retrying(None)
        results, latest, now = made.results, made.ends.latest, made.observed_ends
        tell_other_decisions(stream, needs, results)
        stamp = batch_stamp(stream, batch, ranges, end, results, made.ends, now, self._observed_ends)
        if self._observed_ends is None or self._observed_ends.reached(end):
            self._observed_ends = now
        if not self._commit(self._pending(stamp, ranges, results, needs, made.seen), results, end):
            return None
        return BatchDone(
            batch,
            results.counts(),
            seconds=0.0,
            task_seconds=made.tasks_ended - started,
            commit_seconds=time.monotonic() - made.tasks_ended,
            lag={p: max(0, latest.get(p, at) - at) for p, at in end.items()},
            valid_through_ms=stamp.valid_through_ms,
            reasons=results.summed(lambda tally: tally.reasons),
            unknown_fields=results.unknown_fields(),
            files=sum(len(files) for files in results.files.values()),
            letters=sum(
                results.rows().get(each.name, 0) for each in stream.spec.targets if each.role == "dead_letters"
            ),
            causes=results.causes(),
            undecided=made.ends.undecided(),
        )

    def _prepare(
        self,
        frame: DataFrame,
        batch: int,
        ranges: Ranges,
        end: dict[TopicPartition, int],
        needs: dict[str, TargetNeed],
    ) -> PreparedBatch:
        """All of a batch before anything is recorded or committed; what fails here leaves nothing behind."""
        for target in (stream := self._stream).targets.values():
            target.renew_access()
        seen, results = self._evolution.run(lambda: self._run_tasks(frame, batch, ranges, needs), batch)
        tasks_ended = time.monotonic()
        step("after_tasks")
        try:
            if stream.schemas:
                stream.schemas.learn(results.schemas)
                stream.schemas.refuse_all_unknown(results.counts(), results.summed(lambda tally: tally.reasons))
            self._judge(results)
            self._check_topics(end)
            # The clock before the log's end: what arrives between the two is not counted as in.
            seen_ms = time.time_ns() // 1_000_000
            ends = self._kafka.ends(end)
            self._continuity.check(ends, results)
        except FrazilError:
            # Nothing is recorded or committed yet, so nobody can ever reference these.
            drop_files(results, stream.targets, keep=frozenset())
            raise
        return PreparedBatch(seen, results, tasks_ended, ends, seen_ms)

    def _judge(self, results: TaskResults) -> None:
        try:
            self._breaker.check(results)
        except ToleranceError as stop:
            if message := publish_stopped_record(self._stream, results):
                raise type(stop)(f"{stop.message} {message}", fix=stop.fix) from None
            raise

    def _check_topics(self, end: dict[TopicPartition, int]) -> None:
        now = self._kafka.identities({partition.topic for partition in end})
        check_identity(self._stream.spec.stream, self._stream.log.topics, now)
        self._stream.log.topics.update(now)

    def _pending(
        self, stamp: Stamp, ranges: Ranges, results: TaskResults, needs: dict[str, TargetNeed], seen: dict[str, Seen]
    ) -> Pending:
        stream = self._stream
        receiving = [
            target
            for target in stream.spec.targets
            if not needs[target.name].nothing and (target.coordinator or results.files[target.name])
        ]
        return Pending(
            ranges,
            {
                target.name: PendingTarget(
                    {p: at for p, at in stream.positions[target.name].items() if p in ranges},
                    target_stamp(stream, target, stamp, ranges, results),
                    tuple(results.files[target.name]),
                    seen[target.name],
                )
                for target in receiving
            },
        )

    def _commit(self, pending: Pending, results: TaskResults, end: dict[TopicPartition, int]) -> bool:
        """Commit on every target; False if a table changed so that the tasks have to run again.

        An error leaves the pending record and the files as they are: what has landed is a matter for the next start.
        """
        stream = self._stream
        record = stream.folder.pending(stream.epoch)
        encoded = pending.encode({name: target.table.metadata for name, target in stream.targets.items()})
        try:
            stream.lease.verify()
        except OSError:
            drop_files(results, stream.targets, keep=frozenset())
            raise
        # From here on another driver may commit from the record, also while this call hangs, or after it has failed.
        try:
            stream.folder.store.put(record, encoded)
        except NotWrittenError:
            # Nobody can have read them, and a full disk would be filled by each attempt anew.
            drop_files(results, stream.targets, keep=frozenset())
            raise
        step("before_commit")
        stream.lease.verify()
        step("after_lease_check")
        committed: set[str] = set()
        for name, planned in pending.targets.items():
            target = stream.targets[name]
            with self.waits.asking(f"catalog {stream.settings.catalog.name}, asked to commit to {name},"):
                outcome = stream.commit(target, planned, pending.batch)
            if outcome is ProposalOutcome.RUN_AGAIN:
                log.info("table %s changed under the batch: its files are dropped and the tasks run again", name)
                reached = target.newest.position if target.newest else {}
                stream.positions[name] = pointwise_max([stream.positions[name], reached])
                self._drop_recorded(record, results, keep=committed)
                if stream.anchor.name in committed:
                    self._counted += results.counts()
                return False
            committed.add(name)
            stream.positions[name] = pointwise_max([stream.positions[name], end])
            if target is stream.anchor:
                step("after_anchor_commit")
        step("after_commits")
        stream.folder.store.delete(record)
        return True

    def _drop_recorded(self, record: str, results: TaskResults, keep: AbstractSet[str]) -> None:
        """Delete files that the record names, unless another driver may have read it.

        Whoever takes the stream over takes the lease and claims every table before it looks for records. So a table
        without a later claim, read after the record is gone, proves that nobody commits from it any more.

        Raises:
            FencedError: Another driver may; its files stay, and are orphan removal's if nobody commits them.
        """
        stream = self._stream
        stream.folder.store.delete(record)
        stream.lease.verify()
        for target in stream.targets.values():
            target.refuse_later_claim(stream.epoch)
        drop_files(results, stream.targets, keep=keep)

    def _run_tasks(self, frame: DataFrame, batch: int, ranges: Ranges, needs: dict[str, TargetNeed]) -> TaskResults:
        plan = slice_plan(self._stream, batch, ranges, needs)
        return run_tasks(self._stream, plan, ranges, frame.sparkSession.sparkContext)
