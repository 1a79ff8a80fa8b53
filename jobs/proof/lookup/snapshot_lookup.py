"""Snapshot lookup: the content of a snapshot of a stream's table, and the snapshots at an instant."""

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
    """Details of a snapshot.

    Attributes:
        kind: Type of its stamp, `batch`, `claim` or `accept`; without one its operation, such as `replace` for a
            compaction.
        stream: Id that stamped it: the stream's, or that of its replays or queues; None without a stamp.
        config, generation: Hashes of the configuration; empty without a stamp.
        ranges: Ledger rows of it, by partition.
        positions: Positions of the table with it; empty once it has expired.
        valid_through: Time before which every record is in; None if unknown.
        event_time: Event times of its stamp; None without any.
        in_line: Whether the branch's head descends from it.
        reading: Snapshot from which it can be read.
        opening: Process that made it.
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
    """Snapshots at an instant; None if none exists.

    Attributes:
        complete: First snapshot with every record of an older timestamp.
        up_to: Newest snapshot that is complete only up to the instant or earlier.
        current: The branch's head at the instant, by the clock of the commits.
        expired: Whether snapshots before the oldest of these have expired, so that others may have matched.
    """

    at: datetime
    complete: SnapshotAnswer | None
    up_to: SnapshotAnswer | None
    current: SnapshotAnswer | None
    expired: bool


def look_up_snapshot(tables: StreamTables, snapshot_id: int) -> SnapshotAnswer:
    """Look up a snapshot; an expired one if the ledger has it.

    Raises:
        FrazilError: Neither the table nor the ledger has it.
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
    """Look up the snapshots at an instant: by the records' time, and by the clock of the commits."""
    metadata = tables.table.metadata
    along = list(ancestors(metadata))
    milliseconds = int(at.timestamp() * 1000)
    complete = up_to = None
    # Newest first: snapshots complete through later times come first.
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
            # It is main's, and the branch had another head then.
            current = None

    def told(snapshot: Snapshot | None) -> SnapshotAnswer | None:
        if snapshot is None:
            return None
        return _answer(tables, snapshot, tables.recorded.of_snapshot(as_landed(snapshot).snapshot_id))

    expired = any(map(reissued, along)) or (bool(along) and along[-1].parent_snapshot_id is not None)
    return InstantAnswer(at, told(complete), told(up_to), told(current), expired)


def _is_older_than_the_remake(snapshot: Snapshot, along: list[Snapshot]) -> bool:
    """Whether a snapshot is below the copies that a branch got at its rebase.

    Args:
        along: Ancestors of the branch, newest first.
    """
    return any(map(reissued, along[: along.index(snapshot)]))


def stamp_of(snapshot: Snapshot) -> Stamp | None:
    """Stamp of a snapshot, of any stream; None without a readable one."""
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
    """Time through which a table's newest stamped snapshot is complete, by later batches without rows for it.

    Only the main table is stamped in every batch. None for that table, and while a batch is being committed.
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
    """Whether the branch's head descends from a snapshot, from its copy, or has it through main."""
    metadata, landed = tables.table.metadata, as_landed(snapshot)
    if any(snapshot.snapshot_id == each.snapshot_id for each in ancestors(metadata)):
        return True
    if any(landed.snapshot_id == as_landed(each).snapshot_id for each in ancestors(metadata)):
        return True
    remade = last_remade(metadata, tables.table.branch)
    published = remade.published.get(tables.spec.stream, 0) if remade is not None else 0
    return stamp_of(snapshot) is not None and (landed.sequence_number or 0) <= published
