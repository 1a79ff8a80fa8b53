"""Commit session: holds the lease of one id, and commits to its tables under the lease's epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from jobs.tables.commit.protocol.pending_record import PendingTarget
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import MetadataCheck, Target, nothing_to_refuse
from jobs.tables.commit.recovery.accept import signed_answer
from jobs.tables.commit.stamp.errors import FencedError
from jobs.tables.commit.stamp.log_state import NOWHERE
from jobs.tables.commit.stamp.offsets import Positions, Ranges
from jobs.tables.commit.stamp.stamps import Stamp


class LeaseHold(Protocol):
    """What a commit session needs of a lease."""

    @property
    def lost(self) -> FencedError | None:
        """Error if the lease is no longer this process's; looks at the clock only."""
        ...

    def acquire(self, above: int) -> int:
        """Take the lease with an epoch greater than `above` and every earlier one."""
        ...

    def verify(self) -> None:
        """Raise unless the lease is still this process's."""
        ...

    def release(self) -> None:
        """Give the lease back."""
        ...


@dataclass(slots=True)
class CommitSession:
    """Tables that this process commits to under one id.

    Attributes:
        id: Id under which the tables are stamped: the stream's, or that of its replays or queues.
        config: Hash of the configuration that makes the rows.
        lease: Lease of the id.
        targets: Targets by table name, the coordinator first.
        generation: The configuration that this process runs under, see `jobs.config.settings.generation`.
        epoch: The session's epoch; 0 until the lease is held.
    """

    id: str
    config: str
    lease: LeaseHold
    targets: dict[str, Target]
    generation: str = ""
    epoch: int = 0

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease during the block, with an epoch above every epoch in the tables."""
        self.epoch = self.lease.acquire(above=max((each.greatest_epoch() for each in self.targets.values()), default=0))
        try:
            yield
        finally:
            self.lease.release()

    def claim_of(self, newest: Stamp | None, first: Positions = NOWHERE, stream: str = "") -> Stamp:
        """Stamp with which this session claims a table.

        Args:
            first: Position of a table without a stamp.
            stream: Id under which the table is stamped, if it is not the session's.
        """
        if newest is not None:
            return newest.claimed(self.epoch, self.generation)
        nothing = Stamp(stream or self.id, "claim", -1, self.epoch, self.config, start=first, position=first)
        return replace(nothing, generation=self.generation)

    def commit(
        self, target: Target, planned: PendingTarget, batch: Ranges, check: MetadataCheck = nothing_to_refuse
    ) -> ProposalOutcome:
        """Commit to a target what a pending record says it is about to receive, under this session's epoch.

        Args:
            check: Called with the metadata that the commit is made on; raises if it must not be made.

        Raises:
            FencedError: A later session has been here, or the lease is lost.
        """
        # The process may have been suspended since the lease was verified. The check costs a look at the clock.
        if lost := self.lease.lost:
            raise lost
        stamp = planned.stamp.under(self.epoch)
        return target.land(stamp, planned.files, seen=planned.seen, batch=batch, position=planned.position, check=check)

    def answer(self, stamps: Mapping[str, Stamp], note: str) -> None:
        """Commit an operator's decisions in this order, each on exactly the table that was read."""
        for name, stamp in stamps.items():
            target = self.targets[name]
            head = target.snapshot_id
            target.restamp(signed_answer(stamp, self.epoch, note))
            for other in self.targets.values():
                # All placeholders share the dead-letter table, so the next one has to commit on the head that this one
                # made.
                if other is not target and other.name == target.name and other.snapshot_id == head:
                    other.table = target.table
