"""Snapshot lookup: what a snapshot of a stream's table holds, and which one goes with an instant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.clients.state_store.epochs import EpochRecord, read_epoch
from jobs.proof.lookup.reading import (
    Reading,
    current_at,
    instant,
    reading,
)
from jobs.proof.lookup.stream_tables import StreamTables
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.reissue import as_landed, last_remade, reissued
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.event_times import EventTimes
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp
from jobs.tables.commit.stamp.target_positions import target_positions
from jobs.tables.ledger.ledger_row import LedgerRow


@dataclass(frozen=True, slots=True)
class SnapshotAnswer:
    """What is known of a snapshot.

    Attributes:
        kind: Of its stamp, `batch`, `claim` or `accept`; without one what it did, such as `replace` for a compaction.
        stream: The id that stamped it: the stream's, or of its replays and queues; None without a stamp.
        config, generation: Hashes of the configuration; empty without a stamp.
        ranges: What the ledger says of it, by partition.
        positions: Where the table stood with it; empty once it has expired.
        valid_through: Every older record is in; None if it is not known.
        event_time: What its stamp says of event times; None where it says nothing.
        in_line: Whether the branch's head stands on it.
        reading: Where it can be read, or what came of it.
        opening: The process that made it.
    """

    snapshot_id: int
    committed_at: datetime
    kind: str
    stream: str | None
    epoch: int | None
    batch: int | None
    config: str
    generation: str
    ranges: tuple[LedgerRow, ...]
    positions: Positions
    valid_through: datetime | None
    in_line: bool
    reading: Reading | None
    opening: EpochRecord | None
    event_time: EventTimes | None = None


@dataclass(frozen=True, slots=True)
class InstantAnswer:
    """The snapshots that go with an instant; None where none that is left does.

    Attributes:
        complete: The first in which every record with an older timestamp is in.
        up_to: The newest that is complete only up to a time before, or at, the instant.
        current: The one that the branch stood at, by the clock of the commits.
        expired: Whether snapshots before the oldest of these have expired, so that others may have gone with it.
    """

    at: datetime
    complete: SnapshotAnswer | None
    up_to: SnapshotAnswer | None
    current: SnapshotAnswer | None
    expired: bool


def look_up_snapshot(tables: StreamTables, snapshot_id: int) -> SnapshotAnswer:
    """What is known of a snapshot, also of one that has expired, if the ledger knows it.

    Raises:
        FrazilError: Neither the table nor the ledger does.
    """
    asked = tables.table
    kept = asked.metadata.snapshot_by_id(snapshot_id)
    landed = as_landed(kept).snapshot_id if kept is not None else snapshot_id
    rows = [row for row in tables.recorded.of_snapshot(landed) if row.table_uuid == asked.uuid]
    if kept is not None:
        return _answer(tables, kept, rows)
    if not rows:
        raise FrazilError(
            f"table {asked.target.name} has no snapshot {snapshot_id}, and neither has the ledger.",
            fix=f"frazil at {tables.spec.stream} --timestamp {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        )
    row = rows[0]
    return SnapshotAnswer(
        snapshot_id,
        row.committed_at,
        "batch" if any(each.kind == "batch" for each in rows) else "accept",
        row.stream,
        row.epoch,
        row.batch,
        row.config,
        row.generation,
        tuple(rows),
        {},
        None,
        in_line=True,
        reading=reading(asked.metadata, snapshot_id, row.sequence),
        opening=read_epoch(tables.store, row.epoch),
    )


def look_up_instant(tables: StreamTables, at: datetime) -> InstantAnswer:
    """The snapshots that go with an instant: by the records' time, and by the clock of the commits."""
    metadata = tables.table.metadata
    along = list(ancestors(metadata))
    milliseconds = int(at.timestamp() * 1000)
    complete = up_to = None
    # Newest first: what is complete through later times comes first.
    for snapshot, through in _valid_through(tables, along):
        if through >= milliseconds:
            complete = snapshot
        elif up_to is None:
            up_to = snapshot
        if through == milliseconds and up_to is None:
            up_to = snapshot
    if tables.table.branch == MAIN_BRANCH and metadata.snapshot_log:
        named = current_at(metadata, milliseconds)
        current = metadata.snapshot_by_id(named) if named is not None else None
    else:
        current = next((each for each in along if each.timestamp_ms <= milliseconds), None)
        if current is not None and reissued(current) is None and _is_older_than_the_remake(current, along):
            # It is main's, and the branch has stood elsewhere then.
            current = None

    def told(snapshot: Snapshot | None) -> SnapshotAnswer | None:
        if snapshot is None:
            return None
        return _answer(tables, snapshot, tables.recorded.of_snapshot(as_landed(snapshot).snapshot_id))

    expired = any(map(reissued, along)) or (bool(along) and along[-1].parent_snapshot_id is not None)
    return InstantAnswer(at, told(complete), told(up_to), told(current), expired)


def _is_older_than_the_remake(snapshot: Snapshot, along: list[Snapshot]) -> bool:
    """Whether a snapshot stands below those that a branch was given when it was remade.

    Args:
        along: The branch's, newest first.
    """
    return any(map(reissued, along[: along.index(snapshot)]))


def stamp_of(snapshot: Snapshot) -> Stamp | None:
    """The stamp of a snapshot, of whatever stream; None without one that this version reads."""
    text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
    try:
        return Stamp.from_json(text) if text else None
    except (ValueError, KeyError, TypeError):
        return None


def _valid_through(tables: StreamTables, along: list[Snapshot]) -> Iterator[tuple[Snapshot, int]]:
    through = _through_without_rows(tables)
    for snapshot in along:
        stamp = stamp_of(snapshot)
        if stamp is None or stamp.stream != tables.spec.stream:
            continue
        known = [each for each in (stamp.valid_through_ms, through) if each is not None]
        through = None
        if known:
            yield snapshot, max(known)


def _through_without_rows(tables: StreamTables) -> int | None:
    """Through when the newest stamped snapshot of a table is complete by the batches since that had no rows for it.

    Only the stream's own table is stamped in every batch. None of that one, and where a batch is to be committed yet.
    """
    newest, asked = tables.newest, tables.table
    if newest is None or asked is tables.sink or not (asked.written and tables.sink.written):
        return None
    own = history(asked.metadata, tables.spec.stream).newest
    names = {asked.target.name: own, tables.sink.target.name: newest}
    stands = target_positions(names, tables.sink.target.name)[asked.target.name]
    complete = all(stands.get(partition, -1) >= at for partition, at in newest.position.items())
    return newest.valid_through_ms if complete else None


def _answer(tables: StreamTables, snapshot: Snapshot, rows: list[LedgerRow]) -> SnapshotAnswer:
    stamp, metadata = stamp_of(snapshot), tables.table.metadata
    own = [row for row in rows if row.table_uuid == tables.table.uuid]
    did = snapshot.summary.operation.value if snapshot.summary else "unknown"
    of_stream = stamp is not None and stamp.stream == tables.spec.stream
    through = stamp.valid_through_ms if stamp else None
    return SnapshotAnswer(
        snapshot.snapshot_id,
        instant(snapshot.timestamp_ms),
        stamp.kind if stamp else did,
        stamp.stream if stamp else None,
        stamp.epoch if stamp else None,
        stamp.batch if stamp else None,
        stamp.config if stamp else "",
        stamp.generation if stamp else "",
        tuple(own),
        stamp.position if stamp else {},
        instant(through) if through is not None else None,
        in_line=_in_line(tables, snapshot),
        reading=reading(metadata, snapshot.snapshot_id, snapshot.sequence_number or 0),
        opening=read_epoch(tables.store, stamp.epoch) if stamp is not None and of_stream else None,
        event_time=stamp.event_time if stamp is not None else None,
    )


def _in_line(tables: StreamTables, snapshot: Snapshot) -> bool:
    """Whether the branch's head stands on a snapshot, or on what was issued again for it, or has it through main."""
    metadata, landed = tables.table.metadata, as_landed(snapshot)
    if any(snapshot.snapshot_id == each.snapshot_id for each in ancestors(metadata)):
        return True
    if any(landed.snapshot_id == as_landed(each).snapshot_id for each in ancestors(metadata)):
        return True
    remade = last_remade(metadata, tables.table.branch)
    published = remade.published.get(tables.spec.stream, 0) if remade is not None else 0
    return stamp_of(snapshot) is not None and (landed.sequence_number or 0) <= published
