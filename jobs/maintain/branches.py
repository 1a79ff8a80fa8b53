"""Which snapshots Iceberg keeps, and in which order: pure functions of a table's metadata."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot


def time_of(snapshot: Snapshot) -> datetime:
    """When a snapshot was committed."""
    return datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)


def current_at(metadata: TableMetadata, at: datetime) -> datetime:
    """When the snapshot was committed that main stood at at an instant; the instant itself if there was none."""
    return next((when for snapshot in main_of(metadata) if (when := time_of(snapshot)) <= at), at)


def main_of(metadata: TableMetadata) -> Sequence[Snapshot]:
    """The snapshots of main that are still there, its head first."""
    head = metadata.refs.get(MAIN_BRANCH)
    return ancestors(metadata, head.snapshot_id) if head else ()


def down_to(metadata: TableMetadata, since: datetime) -> datetime:
    """The cut that keeps what was committed since then.

    Iceberg goes along main from its head, and takes all from the first snapshot on that is older than the cut. Where
    hosts' clocks differ, that may be one that was committed after what has to stay.
    """
    times = [time_of(snapshot) for snapshot in main_of(metadata)]
    last = max((index for index, when in enumerate(times) if when >= since), default=-1)
    return min([since, *times[: last + 1]])


def staying(metadata: TableMetadata, older_than: datetime, retain_last: int, now: datetime) -> set[int]:
    """As Iceberg decides it: of a branch all before the first that may go, tags, and what is young and on neither."""
    stays: set[int] = set()
    reached: set[int] = set()
    for ref in metadata.refs.values():
        if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            stays.add(ref.snapshot_id)
            continue
        # A branch without limits of its own has those of the call.
        age, least = ref.max_snapshot_age_ms, ref.min_snapshots_to_keep or retain_last
        oldest = older_than if age is None else now - timedelta(milliseconds=age)
        chain = ancestors(metadata, ref.snapshot_id)
        reached |= {snapshot.snapshot_id for snapshot in chain}
        for index, snapshot in enumerate(chain):
            if index >= least and time_of(snapshot) < oldest:
                break
            stays.add(snapshot.snapshot_id)
    young = {each.snapshot_id for each in metadata.snapshots if time_of(each) >= older_than}
    return (stays | (young - reached)) & {each.snapshot_id for each in metadata.snapshots}


def ancestors(metadata: TableMetadata, snapshot_id: int) -> Sequence[Snapshot]:
    """A snapshot and those before it that are still there, newest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    found: list[Snapshot] = []
    current = by_id.get(snapshot_id)
    while current is not None:
        found.append(current)
        current = by_id.get(current.parent_snapshot_id or -1)
    return found
