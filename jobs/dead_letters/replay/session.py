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

# The batches of a replay are numbered where a stream has the offsets of a partition: batch n is the range [n, n + 1).
BATCHES = TopicPartition("replay", 0)


def replay_id(stream: str) -> str:
    """The id under which replays of a stream stamp its tables; no stream can have it."""
    return f"{stream}~replay"


def replay_folder(settings: Settings, stream: str) -> StreamFolder:
    """Where the lease and the pending record of a stream's replays are."""
    return stream_folder(settings, replay_id(stream))


def landed_batches(table: Table, stream: str) -> int:
    """How many batches of a stream's replays a table knows: its own, or the dead letters those that they have."""
    newest = history(table.metadata, replay_id(stream)).newest
    return newest.position.get(BATCHES, 0) if newest else 0


class ReplayedPart(NamedTuple):
    """What a batch lands in one table.

    Attributes:
        files: Its data files.
        seen: The table as they were written for it.
        rows: In them.
    """

    files: tuple[DataFile, ...]
    seen: Seen
    rows: int


@dataclass(slots=True, kw_only=True)
class ReplaySession(CommitSession):
    """A replay that may commit: the lease is held, and nothing is left half done.

    The stream's table and its dead letters are claimed. Of a stream with a route every further table is claimed before
    its rows are looked at, and stays a target until the replay ends.

    Attributes:
        spec: The stream.
        folder: Of its replays.
        snapshot: Of the stream's table, with the batch that was landed last.
        claims: The tables that this replay has claimed.
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
        """Its dead letters."""
        return self.targets[self.spec.dead_letter_table]

    @property
    def next_batch(self) -> int:
        """How many batches the stream's table knows."""
        return _known(self.sink)

    @property
    def free_number(self) -> int:
        """The number of the next batch: no table of rows that is claimed has it, as one older than the stream's may."""
        return max(_known(self.targets[name]) for name in {self.sink.name, *self.claims} - {self.letters.name})

    def new_replay(self) -> str:
        """An id for one replay, as its letters keep it."""
        return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{self.epoch}-{uuid.uuid4().hex[:6]}"

    def opened(self, name: str) -> Target:
        """One of the stream's tables, which need not be claimed.

        Raises:
            NoSuchTableError: It is not there.
        """
        if name not in self.targets:
            self.targets[name] = Target(self.sink.catalog, name, self.id, branch=self.spec.branch_of(name))
        return self.targets[name]

    def claimed(self, name: str) -> Target:
        """One of the stream's tables, taken over for this replay: no earlier one can commit to it any more.

        Raises:
            NoSuchTableError: It is not there.
            RolledBackError: It was rolled back to before what a replay did.
        """
        target = self.opened(name)
        if name in self.claims:
            return target
        try:
            target.claim(self.epoch, lambda newest: self.claim_of(newest, {BATCHES: 0}))
        except RolledBackError:
            what = "said of letters" if target is self.letters else "landed"
            raise RolledBackError(
                f"stream {self.spec.stream}: table {name} was rolled back, and what a replay {what} since is no "
                "longer in it. Nothing was changed.",
                fix=f"`frazil letters {self.spec.stream} --after-rollback WHY`, which sets every letter to what the "
                "table's rows say; where the stream itself has stopped, answer it first (`frazil accept`)",
            ) from None
        self.claims.add(name)
        return target

    def read_claimed(self) -> None:
        """Read the tables of rows that are claimed anew, and leave the others to be opened when they are asked for."""
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
        """Commit one batch: its rows, to the stream's table first, then the replay state of its letters.

        The stream's table is stamped in every batch that has rows, also where all of them are for others.

        Args:
            config: The hash of the configuration that made the rows.
            parts: By table; none if no letter of the batch succeeded.
            changes: See `update_replay_state`; letters that are replayed get the snapshot's id here.
            counts: Letters by what became of them.
            batch_ms: The time that the expressions were given, if they ask for it; milliseconds since 1970.

        Returns:
            False if a table changed so that its files no longer fit; they are gone, and no letter is told. What other
            tables have of the batch by then is found there when it is tried again.

        Raises:
            OSError: The state store cannot be reached; files that its pending record cannot name are gone.
            FencedError: Another replay has taken over; nothing more is committed from here.
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
            # Nobody can have read which files they are.
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
        # Only now does no record name them, which a later replay would commit.
        self.delete_files(refused)
        return not refused

    def _planned(
        self, config: str, parts: Mapping[str, ReplayedPart], counts: Counts, batch_ms: int | None
    ) -> dict[str, PendingTarget]:
        """What each table is about to receive, the stream's own first."""
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
        """Commit a batch, which the stream's table has, to the others.

        Returns:
            What a table cannot take any more, since it has changed; its files are still there.

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
        """Tell the letters of a batch that has landed; without `changes` only that they know of it."""
        self.snapshot = self.snapshot_of(stamp)
        changes = CHANGE_ARROW.empty_table() if changes is None else with_snapshot(changes, self.snapshot)
        update_replay_state(self.letters, changes, epoch=self.epoch, stamp=_on_letters(stamp, self.epoch))
        step("replay_after_life")
        self.forget(stamp)

    def snapshot_of(self, stamp: Stamp) -> int | None:
        """The snapshot of the stream's table that holds the batch; None if it has expired or was never committed."""
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
        """Remove the record of a batch."""
        self.folder.store.delete(self.folder.pending(stamp.epoch))
        self.folder.store.delete(changes_key(stamp))

    def settle_lost(self) -> None:
        """Let the letters' table stand where the stream's table does, whatever the state of its letters."""
        at = {BATCHES: self.next_batch}
        stamp = Stamp(
            self.sink.stream, "batch", self.next_batch, self.epoch, self.spec.config_hash, start=at, position=at
        )
        update_replay_state(self.letters, CHANGE_ARROW.empty_table(), epoch=self.epoch, stamp=stamp)


def _known(target: Target) -> int:
    return target.newest.position.get(BATCHES, 0) if target.newest else 0


def _on_letters(stamp: Stamp, epoch: int) -> Stamp:
    """The batch's stamp as the dead letters carry it: that their replay state is complete up to it."""
    return Stamp(stamp.stream, "batch", stamp.batch, epoch, stamp.config, start=stamp.start, position=stamp.position)


def changes_key(stamp: Stamp) -> str:
    """Of the changes to the letters of a batch."""
    return f"letters-{stamp.epoch:08d}-{stamp.batch:08d}.parquet"
