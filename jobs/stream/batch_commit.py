"""Commit of a batch: the pending record, one commit on each target, and what becomes of files that no longer fit."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from jobs.commit.offsets import Positions, Ranges, pointwise_max
from jobs.commit.parked_target import ParkedTarget
from jobs.commit.pending_record import Pending, PendingTarget
from jobs.commit.proposals import ProposalOutcome
from jobs.commit.stamps import Stamp
from jobs.commit.target_positions import TargetNeed
from jobs.state.store import NotWrittenError
from jobs.steps import step
from jobs.stream.batch_stamps import target_stamp
from jobs.stream.commit_pool import commit_each
from jobs.stream.open_stream import OpenStream
from jobs.stream.parked_tables import UNABLE, unable_error
from jobs.stream.progress import BatchWaits
from jobs.stream.results import TaskResults, drop_files
from jobs.stream.tasks import PreparedBatch

log = logging.getLogger(__name__)


class BatchCommit:
    """Commits the batches of one open stream: to the coordinator first, then to the others, some of them together.

    Args:
        stream: The stream, whose positions follow every commit.
        waits: Says what a commit waits for.

    Attributes:
        committed: The targets on which the last batch has landed.
    """

    def __init__(self, stream: OpenStream, waits: BatchWaits) -> None:
        self._stream: OpenStream = stream
        self._waits: BatchWaits = waits
        self.committed: set[str] = set()

    def pending(self, stamp: Stamp, ranges: Ranges, made: PreparedBatch, needs: dict[str, TargetNeed]) -> Pending:
        """What is about to be committed.

        Args:
            stamp: What the stamps of the batch have in common.
            ranges: The batch's.
            made: What its tasks wrote.
            needs: What each target lacks of it.
        """
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
        self.committed = set[str]()
        first = [name for name in pending.targets if name == stream.anchor.name]
        others = [name for name in pending.targets if name != stream.anchor.name]
        again = self._commit_to(first, pending, end)
        if first and not again:
            step("after_anchor_commit")
        if not again:
            again = self._commit_to(others, pending, end)
        if again:
            # Every commit that was begun has answered: what is not in yet is nobody's.
            self._drop_recorded(record, results, keep=self.committed)
            return False
        step("after_commits")
        stream.folder.store.delete(record)
        return True

    def _commit_to(self, names: Sequence[str], pending: Pending, end: Positions) -> list[str]:
        """Commit to some targets together; returns those that changed so that the tasks have to run again for them."""
        stream, guard, landed = self._stream, threading.Lock(), 0

        def commit(name: str) -> ProposalOutcome:
            nonlocal landed
            with self._waits.asking(f"catalog {stream.settings.catalog.name}, asked to commit to {name},"):
                outcome = stream.commit(stream.targets[name], pending.targets[name], pending.batch)
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

        for name, outcome in commit_each(names, commit_or_leave, stream.most_commits).items():
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
            # The record stays: whoever opens the stream gives the others what they lack, and parks these.
            raise unable_error(stream, unable)
        return again

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
