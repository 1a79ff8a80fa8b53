"""Replay session: holds the replays of a stream, and commits batches to its tables and to its dead letters."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.base.failpoints import step
from jobs.clients.state_store.store import NotWrittenError
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.replay_state import (
    CHANGE_ARROW,
    changes_as_parquet,
    update_replay_state,
    with_snapshot,
)
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.protocol.pending_record import Pending, PendingTarget
from jobs.tables.commit.protocol.proposals import ProposalOutcome, Seen
from jobs.tables.commit.protocol.session import CommitSession
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts, PartitionCounts
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.write.file_access import delete_unreferenced

# Batches of a replay are numbered like offsets of a partition: batch n is the range [n, n + 1).
BATCHES = TopicPartition("replay", 0)


def replay_id(stream: str) -> str:
    """Id under which replays of a stream stamp its tables; no stream can have it."""
    return f"{stream}~replay"


def replay_folder(settings: Settings, stream: str) -> StreamFolder:
    """Folder with the lease and the pending record of a stream's replays."""
    return stream_folder(settings, replay_id(stream))


def landed_batches(table: Table, stream: str) -> int:
    """Number of a stream's replay batches that a table has recorded."""
    newest = history(table.metadata, replay_id(stream)).newest
    return newest.position.get(BATCHES, 0) if newest else 0


class ReplayedPart(NamedTuple):
    """Part of a batch for one table.

    Attributes:
        files: Data files.
        seen: State of the table for which they were written.
        rows: Number of rows in them.
    """

    files: tuple[DataFile, ...]
    seen: Seen
    rows: int


@dataclass(slots=True, kw_only=True)
class ReplaySession(CommitSession):
    """A replay that may commit: the lease is held, and nothing is left half done.

    The stream's table and its dead letters are claimed. With a route every further table is claimed before its rows are
    looked up, and stays a target until the replay ends.

    Attributes:
        spec: The stream.
        folder: Folder of its replays.
        snapshot: Snapshot of the stream's table with the last landed batch.
        claims: Tables that this replay has claimed.
    """

    spec: StreamSpec
    folder: StreamFolder
    snapshot: int | None = None
    claims: set[str] = field(default_factory=set)

    @property
    def sink(self) -> Target:
        """The stream's table."""
        return self.targets[self.spec.table.name]

    @property
    def letters(self) -> Target:
        """The stream's dead letters."""
        return self.targets[self.spec.dead_letter_table]

    @property
    def next_batch(self) -> int:
        """Number of batches that the stream's table has recorded."""
        return _known(self.sink)

    @property
    def free_number(self) -> int:
        """Number of the next batch, unused in every claimed table; some may be older than the main table."""
        return max(_known(self.targets[name]) for name in {self.sink.name, *self.claims} - {self.letters.name})

    def new_replay(self) -> str:
        """An id for one replay, recorded in its dead letters."""
        return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{self.epoch}-{uuid.uuid4().hex[:6]}"

    def opened(self, name: str) -> Target:
        """One of the stream's tables, claimed or not.

        Raises:
            NoSuchTableError: It does not exist.
        """
        if name not in self.targets:
            self.targets[name] = Target(self.sink.catalog, name, self.id, branch=self.spec.branch_of(name))
        return self.targets[name]

    def claimed(self, name: str) -> Target:
        """One of the stream's tables, claimed for this replay: no earlier one can commit to it any more.

        Raises:
            NoSuchTableError: It does not exist.
            RolledBackError: It was rolled back to before a replay's commit.
        """
        target = self.opened(name)
        if name in self.claims:
            return target
        try:
            target.claim(self.epoch, lambda newest: self.claim_of(newest, {BATCHES: 0}))
        except RolledBackError:
            what = "recorded of dead letters" if target is self.letters else "landed"
            raise RolledBackError(
                f"stream {self.spec.stream}: table {name} was rolled back, and what a replay {what} since is no "
                "longer in it. Nothing was changed.",
                fix=f"`frazil letters {self.spec.stream} --after-rollback WHY`, which sets every dead letter by the "
                "table's rows; if the stream itself has stopped, answer it first (`frazil accept`)",
            ) from None
        self.claims.add(name)
        return target

    def read_claimed(self) -> None:
        """Reload the claimed tables of rows; others are opened when they are needed."""
        for name in self.targets.keys() - self.claims:
            del self.targets[name]
        for name in self.claims - {self.letters.name}:
            self.targets[name].read()

    def land(
        self,
        config: str,
        parts: Mapping[str, ReplayedPart],
        changes: pa.Table,
        counts: Counts,
        batch_ms: int | None = None,
    ) -> bool:
        """Commit one batch: its rows, to the main table first, then the replay state of its dead letters.

        The main table is stamped in every batch with rows, even if all of them are for other tables.

        Args:
            config: Hash of the configuration that made the rows.
            parts: Parts by table; empty if no dead letter of the batch succeeded.
            changes: See `update_replay_state`; replayed dead letters get the snapshot's id here.
            counts: Dead letters by fate.
            batch_ms: Time for now() in expressions, if they use it; milliseconds since 1970.

        Returns:
            False if a table changed so that its files no longer fit; they are deleted, and no dead letter is changed.
            The repeated batch finds what other tables have of it by then.

        Raises:
            OSError: The state store is unavailable; files that its pending record cannot name are deleted.
            FencedError: Another replay has taken over; nothing more is committed here.
        """
        if not parts:
            self.lease.verify()
            update_replay_state(self.letters, changes, epoch=self.epoch)
            return True
        planned = self._planned(config, parts, counts, batch_ms)
        stamp = planned[self.sink.name].stamp
        batch = {BATCHES: OffsetRange(stamp.batch, stamp.batch + 1)}
        store = self.folder.store
        pending = Pending(batch, planned).encode({name: self.targets[name].table.metadata for name in planned})
        try:
            self.lease.verify()
            store.put(changes_key(stamp), changes_as_parquet(changes))
        except OSError:
            self.delete_files(planned)
            raise
        try:
            store.put(self.folder.pending(self.epoch), pending)
        except NotWrittenError:
            # Nobody can have read their names.
            self.delete_files(planned)
            raise
        step("replay_before_commit")
        self.lease.verify()
        if self.commit(self.sink, planned[self.sink.name], batch) is ProposalOutcome.RUN_AGAIN:
            self.forget(stamp)
            self.delete_files(planned)
            return False
        refused = self.commit_further(planned, batch)
        step("replay_after_commit")
        self.finish(stamp, None if refused else changes)
        # Only now does no record name them, from which a later replay would commit them.
        self.delete_files(refused)
        return not refused

    def _planned(
        self, config: str, parts: Mapping[str, ReplayedPart], counts: Counts, batch_ms: int | None
    ) -> dict[str, PendingTarget]:
        """Parts for each table, the main table first."""
        number, own = self.free_number, self.sink.name
        at = {BATCHES: number}
        given = {own: parts.get(own) or ReplayedPart((), self.sink.seen(), 0), **parts}
        planned: dict[str, PendingTarget] = {}
        for name, part in given.items():
            mine = counts if name == own else Counts(part.rows, part.rows)
            stamp = Stamp(
                *(self.id, "batch", number, self.epoch, config),
                start=at,
                position={BATCHES: number + 1},
                rows={name: part.rows},
                counts=mine,
                targets={each.name: each.uuid for each in (self.sink, self.letters)} if name == own else {},
                parts={BATCHES: PartitionCounts(number, mine)},
                batch_ms=batch_ms if name == own else None,
            )
            planned[name] = PendingTarget(at, stamp, part.files, part.seen)
        return planned

    def commit_further(self, planned: Mapping[str, PendingTarget], batch: Ranges) -> dict[str, PendingTarget]:
        """Commit a batch of the main table to the others.

        Returns:
            Parts that a changed table can no longer take; their files still exist.

        Raises:
            FencedError: Another replay has taken over.
        """
        refused: dict[str, PendingTarget] = {}
        for name, part in planned.items():
            if name == self.sink.name:
                continue
            step("replay_between_tables")
            self.lease.verify()
            target = self.claimed(name)
            if self.commit(target, part, batch) is ProposalOutcome.RUN_AGAIN:
                refused[name] = part
        return refused

    def finish(self, stamp: Stamp, changes: pa.Table | None) -> None:
        """Set the state of a landed batch's dead letters; without `changes` only stamp their table."""
        self.snapshot = self.snapshot_of(stamp)
        changes = CHANGE_ARROW.empty_table() if changes is None else with_snapshot(changes, self.snapshot)
        update_replay_state(self.letters, changes, epoch=self.epoch, stamp=_on_letters(stamp, self.epoch))
        step("replay_after_life")
        self.forget(stamp)

    def snapshot_of(self, stamp: Stamp) -> int | None:
        """Snapshot of the stream's table with the batch; None if it has expired or was never committed."""
        for snapshot_id, found in stamps_along_main(self.sink.table.metadata, self.id):
            if found.kind == "batch" and (found.batch, found.epoch) == (stamp.batch, stamp.epoch):
                return snapshot_id
        return None

    def delete_files(self, planned: Mapping[str, PendingTarget]) -> None:
        """Delete the files of a batch that no table has."""
        for name, part in planned.items():
            if part.files:
                delete_unreferenced(self.targets[name].table.io, part.files)

    def forget(self, stamp: Stamp) -> None:
        """Remove the pending record of a batch."""
        self.folder.store.delete(self.folder.pending(stamp.epoch))
        self.folder.store.delete(changes_key(stamp))

    def settle_lost(self) -> None:
        """Move the dead letters' stamp to the stream's table's position, whatever the state of the dead letters."""
        at = {BATCHES: self.next_batch}
        stamp = Stamp(
            self.sink.stream, "batch", self.next_batch, self.epoch, self.spec.config_hash, start=at, position=at
        )
        update_replay_state(self.letters, CHANGE_ARROW.empty_table(), epoch=self.epoch, stamp=stamp)


def _known(target: Target) -> int:
    return target.newest.position.get(BATCHES, 0) if target.newest else 0


def _on_letters(stamp: Stamp, epoch: int) -> Stamp:
    """The batch's stamp for the dead letters, which records that their replay state is complete up to it."""
    return Stamp(stamp.stream, "batch", stamp.batch, epoch, stamp.config, start=stamp.start, position=stamp.position)


def changes_key(stamp: Stamp) -> str:
    """Key of the changes to a batch's dead letters."""
    return f"letters-{stamp.epoch:08d}-{stamp.batch:08d}.parquet"
