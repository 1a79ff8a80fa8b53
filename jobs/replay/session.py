"""Replay session: holds the replays of a stream, commits batches, and finishes what an earlier replay left."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.pending_record import Pending, PendingTarget
from jobs.commit.proposals import ProposalOutcome, Seen
from jobs.commit.session import CommitSession
from jobs.commit.stamp_fields import Counts, PartitionCounts
from jobs.commit.stamp_history import history, stamps_along_main
from jobs.commit.stamps import Stamp
from jobs.commit.target import Target
from jobs.errors import StreamStopped
from jobs.replay.outcome import changes_as_parquet, changes_from_parquet, with_snapshot
from jobs.replay.replay_state import CHANGE_ARROW, update_replay_state
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.state.store import NotWrittenError
from jobs.state.stream_folder import StreamFolder, stream_folder
from jobs.steps import step
from jobs.write.unreferenced_files import delete_unreferenced

log = logging.getLogger(__name__)

# The batches of a replay are numbered where a stream has the offsets of a partition: batch n is the range [n, n + 1).
BATCHES = TopicPartition("replay", 0)


class LostRecordError(StreamStopped):
    """A replay's rows stand in a table that does not say which letters they are of."""


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


@dataclass(slots=True, kw_only=True)
class ReplaySession(CommitSession):
    """A replay that may commit: the lease is held, both tables are claimed, nothing is left half done.

    Attributes:
        spec: The stream.
        folder: Of its replays.
        snapshot: Of the stream's table, with the rows of the batch that was landed last.
    """

    spec: StreamSpec
    folder: StreamFolder
    snapshot: int | None = None

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
        """The number of the next batch."""
        return self.sink.newest.position.get(BATCHES, 0) if self.sink.newest else 0

    def new_replay(self) -> str:
        """An id for one replay, as its letters keep it."""
        return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{self.epoch}-{uuid.uuid4().hex[:6]}"

    def land(self, config: str, files: Sequence[DataFile], seen: Seen, changes: pa.Table, counts: Counts) -> bool:
        """Commit one batch: its rows, then the replay state of its letters.

        Args:
            config: The hash of the configuration that made the rows.
            files: For the stream's table; none if no letter of the batch succeeded.
            seen: The table as the files were written for it.
            changes: See `update_replay_state`; letters that are replayed get the snapshot's id here.
            counts: Letters by what became of them.

        Returns:
            False if the table changed so that the files no longer fit; nothing is committed and the files are gone.

        Raises:
            OSError: The state store cannot be reached; files that its pending record cannot name are gone.
            FencedError: Another replay has taken over; nothing more is committed from here.
        """
        if not files:
            self.lease.verify()
            update_replay_state(self.letters, changes, epoch=self.epoch)
            return True
        stamp = self._stamp(config, counts)
        batch = {BATCHES: OffsetRange(stamp.batch, stamp.batch + 1)}
        planned = PendingTarget({BATCHES: stamp.batch}, stamp, tuple(files), seen)
        store = self.folder.store
        pending = Pending(batch, {self.sink.name: planned}).encode({self.sink.name: self._metadata()})
        try:
            self.lease.verify()
            store.put(_changes_key(stamp), changes_as_parquet(changes))
        except OSError:
            delete_unreferenced(self.sink.table.io, planned.files)
            raise
        try:
            store.put(self.folder.pending(self.epoch), pending)
        except NotWrittenError:
            # Nobody can have read which files they are.
            delete_unreferenced(self.sink.table.io, planned.files)
            raise
        step("replay_before_commit")
        self.lease.verify()
        if self.commit(self.sink, planned, batch) is ProposalOutcome.RUN_AGAIN:
            self._drop(planned)
            return False
        step("replay_after_commit")
        self._finish(stamp, changes)
        return True

    def _stamp(self, config: str, counts: Counts) -> Stamp:
        number = self.next_batch
        return Stamp(
            self.sink.stream,
            "batch",
            number,
            self.epoch,
            config,
            start={BATCHES: number},
            position={BATCHES: number + 1},
            rows={self.sink.name: counts.landed},
            counts=counts,
            targets={self.sink.name: self.sink.uuid, self.letters.name: self.letters.uuid},
            parts={BATCHES: PartitionCounts(number, counts)},
        )

    def _metadata(self) -> TableMetadata:
        return self.sink.table.metadata

    def _finish(self, stamp: Stamp, changes: pa.Table) -> None:
        self.snapshot = self._snapshot_of(stamp)
        update_replay_state(
            self.letters, with_snapshot(changes, self.snapshot), epoch=self.epoch, stamp=_on_letters(stamp, self.epoch)
        )
        step("replay_after_life")
        self._forget(stamp)

    def _snapshot_of(self, stamp: Stamp) -> int | None:
        """The snapshot that holds the batch; None if it has expired or was never committed."""
        for snapshot_id, found in stamps_along_main(self._metadata(), self.sink.stream):
            if found.kind == "batch" and (found.batch, found.epoch) == (stamp.batch, stamp.epoch):
                return snapshot_id
        return None

    def _drop(self, planned: PendingTarget) -> None:
        delete_unreferenced(self.sink.table.io, planned.files)
        self._forget(planned.stamp)

    def _forget(self, stamp: Stamp) -> None:
        self.folder.store.delete(self.folder.pending(stamp.epoch))
        self.folder.store.delete(_changes_key(stamp))

    def recover(self) -> None:
        """Finish what earlier replays left: a batch that landed becomes known to its letters, another is dropped.

        Nobody can commit for them any more, since both tables are claimed.
        """
        store = self.folder.store
        for key in self.folder.pending_records():
            step("replay_before_recovery")
            content = store.get(key)
            if content is None:
                continue
            pending = Pending.decode(content, {self.sink.name: self._metadata()})
            planned = pending.targets[self.sink.name]
            stamp = planned.stamp
            changes = store.get(_changes_key(stamp)) if self._snapshot_of(stamp) is not None else None
            if changes is not None:
                log.info(
                    "stream %s: batch %d of a replay has landed; its letters learn it", self.spec.stream, stamp.batch
                )
                self._finish(stamp, changes_from_parquet(changes))
            elif self._never_landed(stamp):
                self._drop(planned)
            else:
                # Its snapshot has expired: its files may be the table's, and its letters are told by their rows.
                self._forget(stamp)
        for left in store.keys("letters-*.parquet"):
            store.delete(left)
        self._settle_unknown()

    def _never_landed(self, stamp: Stamp) -> bool:
        if self.next_batch <= stamp.batch:
            return True
        others = (found for _, found in stamps_along_main(self._metadata(), self.sink.stream))
        return any(found.kind == "batch" and found.batch == stamp.batch for found in others) and (
            self._snapshot_of(stamp) is None
        )

    def settle_lost(self) -> None:
        """Let the letters' table stand where the stream's table does, whatever the state of its letters."""
        at = {BATCHES: self.next_batch}
        stamp = Stamp(
            self.sink.stream, "batch", self.next_batch, self.epoch, self.spec.config_hash, start=at, position=at
        )
        update_replay_state(self.letters, CHANGE_ARROW.empty_table(), epoch=self.epoch, stamp=stamp)

    def _settle_unknown(self) -> None:
        """A pending record that is lost does no harm where rows say what they are of."""
        known = self.letters.newest.position.get(BATCHES, 0) if self.letters.newest else 0
        if known >= self.next_batch:
            return
        if self.spec.kafka_columns.locate_rows_of(self.sink.table.schema()):
            self.settle_lost()
            return
        raise LostRecordError(
            f"stream {self.spec.stream}: batch {known} of a replay is in {self.sink.name}, its letters do not know it, "
            f"its pending record is lost, and the table has no columns of Kafka's own to tell which letters they are. "
            "Nothing was changed.",
            fix=f'find the rows by the snapshot with `"batch":{known}` of {self.sink.stream} in its summary, dismiss '
            f"their letters with `frazil letters {self.spec.stream} --dismiss 'has landed' …`, then "
            f"`frazil letters {self.spec.stream} --settle-lost 'their letters are dismissed'`",
        )


def _on_letters(stamp: Stamp, epoch: int) -> Stamp:
    """The batch's stamp as the dead letters carry it: that their replay state is complete up to it."""
    return Stamp(stamp.stream, "batch", stamp.batch, epoch, stamp.config, start=stamp.start, position=stamp.position)


def _changes_key(stamp: Stamp) -> str:
    """Of the changes to the letters of a batch."""
    return f"letters-{stamp.epoch:08d}-{stamp.batch:08d}.parquet"
