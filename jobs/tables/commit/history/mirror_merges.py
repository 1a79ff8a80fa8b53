"""Merges on a mirror's main branch, and snapshots by which other writers changed its rows."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp

MOST_NAMED = 20
"""Most snapshots of other writers that a stamp lists. Whether there are any does not depend on it."""
_WRITES = ("append", "overwrite", "delete")


def newest_merge(metadata: TableMetadata, mirror_id: str) -> Snapshot | None:
    """The newest snapshot on main that moved the mirror forward, or None; claims and answers do not count.

    Args:
        metadata: The mirror's metadata.
        mirror_id: Id under which the mirror is stamped.
    """
    return next((each for each in ancestors(metadata) if _is_merge(each, mirror_id)), None)


def other_writes(metadata: TableMetadata, mirror_id: str, known: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Snapshots by which other writers changed rows, oldest first.

    Args:
        metadata, mirror_id: As for `newest_merge`.
        known: Snapshots that the newest merge has already reported.
    """
    found = [each.snapshot_id for each in _since_merge(metadata, mirror_id) if each.summary and _writes(each)]
    return (*known, *reversed(found))[-MOST_NAMED:]


def _since_merge(metadata: TableMetadata, mirror_id: str) -> Iterator[Snapshot]:
    for each in ancestors(metadata):
        if _is_merge(each, mirror_id):
            return
        yield each


def _is_merge(snapshot: Snapshot, mirror_id: str) -> bool:
    text = snapshot.summary.additional_properties.get(SUMMARY_KEY) if snapshot.summary else None
    if not text or mirror_id not in text:
        return False
    stamp = Stamp.from_json(text)
    return stamp.stream == mirror_id and stamp.kind == "batch"


def _writes(snapshot: Snapshot) -> bool:
    """Whether a snapshot changes rows; a claim or an answer appends nothing."""
    summary = snapshot.summary
    return (
        summary is not None and SUMMARY_KEY not in summary.additional_properties and summary.operation.value in _WRITES
    )
