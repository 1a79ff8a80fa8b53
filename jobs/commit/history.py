"""What a table's snapshots and properties say about a stream: its newest stamp, and whether somebody rolled it back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.stamps import SUMMARY_KEY, Stamp, property_key


@dataclass(frozen=True, slots=True)
class History:
    """The stamps of one stream on one table.

    Attributes:
        newest: The newest stamp that counts, or None if the stream never committed here.
        stamped_ancestor: The newest stamp among the ancestors of the branch's head.
        removed: Per partition, the records that a rollback took out of the table; empty if nobody rolled it back.
    """

    newest: Stamp | None
    stamped_ancestor: Stamp | None
    removed: dict[TopicPartition, OffsetRange]
    rolled_back: bool


def history(metadata: TableMetadata, stream: str) -> History:
    """Read the stamps of `stream` along the ancestors of main, and the property.

    Snapshots that are no ancestors (rolled back, or on other branches) do not count. Where no ancestor carries a stamp,
    the sequence numbers tell why: if all that are left come after the stamped commit, its snapshot has expired and the
    property decides; if one comes before it, or none is left at all, somebody moved the branch to before the stream's
    first commit. (Parents do not tell: PyIceberg's expiry makes the oldest snapshot that it keeps look like the table's
    first.)
    """
    recorded = _property_stamp(metadata, stream)
    found, oldest_sequence = _newest_ancestor(metadata, stream)
    if recorded is None:
        return History(found, found, {}, rolled_back=False)
    if found is None and oldest_sequence is not None and oldest_sequence > recorded.sequence:
        return History(recorded, None, {}, rolled_back=False)
    # Both are written by the same commit, so they differ only when the branch was moved since.
    kept = found.position if found else {}
    removed = {
        partition: OffsetRange(kept.get(partition, 0), offset)
        for partition, offset in recorded.position.items()
        if offset > kept.get(partition, 0)
    }
    # Where an operator moved the position back in between, the difference says nothing: what was landed since is gone.
    removed |= {
        partition: OffsetRange(0, recorded.position[partition])
        for partition, offset in kept.items()
        if offset > recorded.position.get(partition, offset)
    }
    return History(recorded, found, removed, rolled_back=bool(removed))


def stamps_along_main(metadata: TableMetadata, stream: str, after: int = -1) -> list[tuple[int, Stamp]]:
    """`(snapshot id, stamp)` of the stream's snapshots that are still kept, newest first.

    Args:
        after: Only those with a greater sequence number.
    """
    found = [(snapshot.snapshot_id, _summary_stamp(snapshot, stream)) for snapshot in _along_main(metadata, after)]
    return [(snapshot_id, stamp) for snapshot_id, stamp in found if stamp]


def stamped_snapshots(metadata: TableMetadata, stream: str, after: int = -1) -> Iterator[tuple[Snapshot, Stamp]]:
    """As `stamps_along_main`, but oldest first, with whole snapshots; a stamp is read when it is asked for."""
    for snapshot in reversed(_along_main(metadata, after)):
        stamp = _summary_stamp(snapshot, stream)
        if stamp:
            yield snapshot, stamp


def _along_main(metadata: TableMetadata, after: int) -> list[Snapshot]:
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    found: list[Snapshot] = []
    current = by_id.get(_head_id(metadata) or -1)
    while current is not None and (current.sequence_number or 0) > after:
        found.append(current)
        current = by_id.get(current.parent_snapshot_id or -1)
    return found


def greatest_epoch(metadata: TableMetadata, stream: str) -> int:
    """The greatest epoch that any stamp of the stream carries here, on any branch; 0 without one."""
    stamps = [_property_stamp(metadata, stream)]
    stamps += [_summary_stamp(snapshot, stream) for snapshot in metadata.snapshots]
    return max((stamp.epoch for stamp in stamps if stamp), default=0)


def _head_id(metadata: TableMetadata) -> int | None:
    ref = metadata.refs.get(MAIN_BRANCH)
    return ref.snapshot_id if ref else None


def _property_stamp(metadata: TableMetadata, stream: str) -> Stamp | None:
    text = metadata.properties.get(property_key(stream))
    return Stamp.from_json(text) if text else None


def _summary_stamp(snapshot, stream: str) -> Stamp | None:
    text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
    # The stream's name stands in the text, so most foreign stamps need no parsing.
    if not text or f'"{stream}"' not in text:
        return None
    stamp = Stamp.from_json(text)
    return stamp if stamp.stream == stream else None


def _newest_ancestor(metadata: TableMetadata, stream: str) -> tuple[Stamp | None, int | None]:
    """The newest stamp among the ancestors of main's head, and the least sequence number met on the way to it."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    snapshot = by_id.get(_head_id(metadata) or -1)
    oldest: int | None = None
    while snapshot is not None:
        oldest = snapshot.sequence_number or 0
        stamp = _summary_stamp(snapshot, stream)
        if stamp:
            return stamp, oldest
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)
    return None, oldest
