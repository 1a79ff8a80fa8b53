"""Merges on a mirror's main branch, and the snapshots beside them by which somebody else has changed its rows."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.stamp.stamps import SUMMARY_KEY, Stamp

MOST_NAMED = 20
"""Most snapshots of others that a stamp remembers. Whether there are some does not depend on it."""
_WRITES = ("append", "overwrite", "delete")


def newest_merge(metadata: TableMetadata, mirror_id: str) -> Snapshot | None:
    """The snapshot on main by which a mirror was moved on last, or None; claims and answers move nothing.

    Args:
        metadata: The mirror's.
        mirror_id: Under which it is stamped.
    """
    return next((each for each in ancestors(metadata) if _is_merge(each, mirror_id)), None)


def other_writes(metadata: TableMetadata, mirror_id: str, known: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Snapshots by which somebody else has changed rows, oldest first.

    Args:
        metadata, mirror_id: As for `newest_merge`.
        known: Those that the newest merge has told.
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
    """Whether it changes rows; a claim or an answer is an append of nothing."""
    summary = snapshot.summary
    return (
        summary is not None and SUMMARY_KEY not in summary.additional_properties and summary.operation.value in _WRITES
    )
