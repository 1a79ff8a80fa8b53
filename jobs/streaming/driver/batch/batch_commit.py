"""Commit of a batch: the pending record, one commit on each target, and the removal of files that no longer fit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from pyiceberg.table.metadata import TableMetadata

from jobs.base.failpoints import step
from jobs.clients.state_store.store import NotWrittenError
from jobs.config.values.targets import TargetSpec
from jobs.streaming.driver.batch.tasks import PreparedBatch
from jobs.streaming.driver.batch.watermark import advanced, known_times
from jobs.streaming.driver.context.commit_pool import commit_each
from jobs.streaming.driver.context.completeness import ObservedEnds, valid_through
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.progress import BatchWaits
from jobs.streaming.driver.context.results import TaskResults, drop_files
from jobs.streaming.driver.context.second_run import stamped_ids
from jobs.streaming.driver.tables.former_sink import TableHead, refuse_restarted_sink
from jobs.streaming.driver.tables.lanes import tables_of_topics
from jobs.streaming.driver.tables.parked_tables import UNABLE, unable_error
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.protocol.parked_target import ParkedTarget, letters_held
from jobs.tables.commit.protocol.pending_record import Pending, PendingTarget
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.stamp.decided_names import decided_names
from jobs.tables.commit.stamp.errors import SinkRestartedError
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.commit.stamp.log_state import has_id
from jobs.tables.commit.stamp.offsets import Positions, Ranges, pointwise_max
from jobs.tables.commit.stamp.retired_topics import Retired, remembered_topics
from jobs.tables.commit.stamp.stamp_fields import Counts, at_positions
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_directory import MOST_NAMED
from jobs.tables.commit.stamp.target_positions import TargetNeed

log = logging.getLogger(__name__)


class BatchCommit:
    """Commits the batches of one open stream: first to the coordinator, then to the others, some at the same time.

    Attributes:
        committed: Targets on which the last batch has landed.
    """

    def __init__(self, stream: OpenStream, waits: BatchWaits) -> None:
        self._stream: OpenStream = stream
        self._waits: BatchWaits = waits
        self.committed: set[str] = set()

    def pending(self, stamp: Stamp, ranges: Ranges, made: PreparedBatch, needs: dict[str, TargetNeed]) -> Pending:
        """Pending record of the batch."""
        stream, results, seen = self._stream, made.results, made.seen
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

    def commit(self, pending: Pending, results: TaskResults, end: Positions) -> bool:
        """Commit on every target; False if a table changed so that the tasks have to run again.

        An error leaves the pending record and the files; the next start finds out what has landed.
        """
        stream = self._stream
        record = stream.folder.pending(stream.epoch)
        encoded = pending.encode({name: target.table.metadata for name, target in stream.targets.items()})
        try:
            stream.lease.verify()
        except OSError:
            drop_files(results, stream.targets, keep=frozenset())
            raise
        # From here on another driver may commit from the record, even while this call hangs or after it has failed.
        try:
            stream.folder.store.put(record, encoded)
        except NotWrittenError:
            # Nobody can have read the record, and repeated attempts would fill the disk.
            drop_files(results, stream.targets, keep=frozenset())
            raise
        step("before_commit")
        stream.lease.verify()
        step("after_lease_check")
        self.committed = set[str]()
        first = [name for name in pending.targets if name == stream.anchor.name]
        others = [name for name in pending.targets if name != stream.anchor.name]
        again = self._commit_to(first, pending, end)
        if first and not again:
            step("after_anchor_commit")
        if not again:
            again = self._commit_to(others, pending, end)
        if again:
            # Every commit that was begun has answered, so nobody references the files that have not landed.
            self._drop_recorded(record, results, keep=self.committed)
            return False
        step("after_commits")
        stream.folder.store.delete(record)
        return True

    def _commit_to(self, names: Sequence[str], pending: Pending, end: Positions) -> list[str]:
        """Commit to some targets at the same time; returns those for which the tasks have to run again."""
        stream, guard, landed = self._stream, threading.Lock(), 0

        def commit(name: str) -> ProposalOutcome:
            nonlocal landed
            target, coordinator = stream.targets[name], stream.anchor.table.metadata

            def check(metadata: TableMetadata) -> None:
                refuse_restarted_sink(stream.id, coordinator, [TableHead(target.name, target.branch, metadata)])

            with self._waits.asking(f"catalog {stream.settings.catalog.name}, asked to commit to {name},"):
                outcome = stream.commit(target, pending.targets[name], pending.batch, check)
            if outcome is ProposalOutcome.LANDED and name != stream.anchor.name:
                with guard:
                    landed += 1
                    left = landed < len(names)
                if left:
                    step("after_table_commit")
            return outcome

        again, unable = list[str](), dict[str, str]()

        def commit_or_leave(name: str) -> ProposalOutcome | None:
            try:
                return commit(name)
            except UNABLE as problem:
                if not stream.spec.parks(name) or isinstance(stream.targets[name], ParkedTarget):
                    raise
                unable[name] = problem.message
                return None

        try:
            outcomes = commit_each(names, commit_or_leave, stream.most_commits)
        except SinkRestartedError:
            self._refuse_restarted_sink()
            raise
        for name, outcome in outcomes.items():
            if outcome is None:
                continue
            reached = end
            if outcome is ProposalOutcome.RUN_AGAIN:
                log.info("table %s changed under the batch: its files are dropped and the tasks run again", name)
                again.append(name)
                newest = stream.targets[name].newest
                reached = newest.position if newest else {}
            else:
                self.committed.add(name)
            stream.positions[name] = pointwise_max([stream.positions[name], reached])
        if unable:
            # The record stays: the next opening of the stream commits what the others lack, and suspends these.
            raise unable_error(stream, unable)
        return again

    def _refuse_restarted_sink(self) -> None:
        """Raise one stop for all tables of the stream, as a connector may have committed to any of them."""
        stream, heads = self._stream, list[TableHead]()
        for target in stream.targets.values():
            if (table := existing_table(target.catalog, target.name, target.branch)) is not None:
                heads.append(TableHead(target.name, target.branch, table.metadata))
        refuse_restarted_sink(stream.id, stream.anchor.table.metadata, heads)

    def _drop_recorded(self, record: str, results: TaskResults, keep: AbstractSet[str]) -> None:
        """Delete files in the record, unless another driver may have read it.

        A driver that takes the stream over claims the tables before it looks for records. So once the record is
        removed, and there is no later claim, nobody commits from it.
        """
        stream = self._stream
        stream.folder.store.delete(record)
        stream.lease.verify()
        for target in stream.targets.values():
            target.refuse_later_claim(stream.epoch)
        drop_files(results, stream.targets, keep=keep)


def batch_stamp(
    stream: OpenStream,
    batch: int,
    ranges: Ranges,
    end: Positions,
    made: PreparedBatch,
    earlier: ObservedEnds | None,
) -> Stamp:
    """The common parts of a batch's stamps.

    Args:
        end: Next offsets after the batch, of every partition.
        made: Files and counts of its tasks, and the ends of the logs after they had read.
        earlier: Ends of the logs at an earlier time.
    """
    newest = stream.anchor.newest
    results, ends, now = made.results, made.ends, made.observed_ends
    seen = made.seen[stream.spec.table.name]
    others = {name: made.seen[name] for name in tables_of_topics(stream, ranges) if name != stream.spec.table.name}
    kept = stream.begin.kept
    # Topics that the spec no longer names keep their known end. Otherwise one that is dropped would count as read.
    known_ends = {p: at for p, at in newest.ends.items() if p in kept} if newest else {}
    position = {**kept, **end}
    through_ms = valid_through(end, now, results.tallies, newest.valid_through_ms if newest else None, earlier)
    return Stamp(
        stream.spec.stream,
        "batch",
        batch,
        stream.epoch,
        stream.spec.config_hash,
        start=kept | {partition: range_.start for partition, range_ in ranges.items()},
        position=position,
        ends=known_ends | {p: at for p, at in ends.latest.items() if at > end[p]},
        valid_through_ms=through_ms,
        rows=results.rows(),
        counts=results.counts(),
        generation=stream.generation,
        last_reads=results.marks(position, at_positions(newest.last_reads, newest.position) if newest else {}),
        retired=_retired(stream, newest, now.at_ms) if newest else {},
        schema_id=seen.schema_id,
        names=decided_names(seen.schema, seen.mapping),
        schemas={name: each.schema_id for name, each in others.items()},
        further_names={
            name: names for name, each in others.items() if (names := decided_names(each.schema, each.mapping))
        },
        decoded_of={
            name: each.decoded for name, each in others.items() if each.decoded and stream.spec.for_table(name).shapes
        },
        unknown_ids=stamped_ids(results.unmet),
        decoded=seen.decoded if stream.spec.shapes else None,
        event_time=_event_times(stream, newest, end, results, now, through_ms),
        before_ms=stream.complete_ms if stream.spec.publish else None,
        batch_ms=stream.batch_ms if stream.asks_batch_time else None,
    )


def _event_times(
    stream: OpenStream,
    newest: Stamp | None,
    end: Positions,
    results: TaskResults,
    now: ObservedEnds,
    through_ms: int | None,
) -> EventTimes | None:
    if (event_time := stream.spec.event_time) is None:
        return None
    before, read = known_times(newest, event_time), results.greatest_events()
    return advanced(before, event_time, read, end, now, through_ms, results.events())


def _retired(stream: OpenStream, newest: Stamp, now_ms: int) -> dict[str, Retired]:
    gone: dict[str, dict[int, int]] = {}
    for partition, at in newest.position.items():
        if partition.topic in stream.begin.retired and has_id(newest.topics.get(partition.topic)):
            gone.setdefault(partition.topic, {})[partition.partition] = at
    now = {topic: Retired(newest.topics[topic], now_ms, positions) for topic, positions in gone.items()}
    return remembered_topics(newest.retired, now, {*stream.log.topics, *stream.begin.dropped}, now_ms)


def target_stamp(stream: OpenStream, target: TargetSpec, stamp: Stamp, ranges: Ranges, results: TaskResults) -> Stamp:
    """The batch's stamp for one target, with what that target receives."""
    parts = results.parts(ranges, stream.positions[target.name], target)
    stamp = replace(stamp, parts=parts, counts=sum((part.counts for part in parts.values()), Counts()))
    stamp = replace(stamp, stream=stream.targets[target.name].stream)
    many = len(stream.targets) > MOST_NAMED
    if not target.coordinator:
        # With many targets, only the coordinator's stamp names all that have rows of the batch.
        rows = {target.name: stamp.rows.get(target.name, 0)} if many else stamp.rows
        # A table with its own columns keeps its decoded columns; its stamp shows if it has lost them.
        decoded = stamp.decoded_of.get(target.name)
        decided = replace(stamp, names=None, schemas={}, further_names={}, decoded_of={}, decoded=decoded)
        decided = replace(decided, unknown_ids=(), batch_ms=None)
        return replace(decided, last_reads={}, retired={}, event_time=None, rows=rows, before_ms=None)
    if many:
        # If the coordinator was ahead of the batch, an earlier batch counted the records in between.
        stood = stream.positions[target.name]
        whole = all(stood.get(partition, start) <= start for partition, (start, _) in ranges.items())
        stamp = replace(stamp, failed=stamp.counts.dead if whole else None)
    held = letters_held(stream.targets, stream.anchor.newest, stream.targets)
    stamp = replace(stamp, held={name: count + results.rows().get(name, 0) for name, count in held.items()})
    uuids = {name: each.identity for name, each in stream.targets.items()}
    before = stream.anchor.newest.topics if stream.anchor.newest else {}
    kept = {topic: before[topic] for topic in stream.begin.dropped if topic in before}
    # A known id stays known if brokers do not report it now.
    there = {topic: now if has_id(now) else before.get(topic, now) for topic, now in stream.log.topics.items()}
    others = (each for each in stream.targets.values() if each is not stream.anchor)
    moves = {each.uuid: each.newest.last_move for each in others if each.newest and each.identity == each.uuid}
    stamp = replace(stamp, sequences={uuid: move for uuid, move in moves.items() if move})
    return stamp.anchored(uuids, kept | there)
