"""Table growth a day, from the summaries of the snapshots that are kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.commit.lineage import ancestors
from jobs.commit.stamps import BACKFILL_KEY

_DAY_SECONDS = 86_400.0
# The commits of a few minutes say nothing of a day.
_LEAST_SECONDS = 3_600.0


@dataclass(frozen=True, slots=True)
class Growth:
    """What commits of data did over the kept part of main's history, compactions left out.

    Attributes:
        bytes_per_day: Bytes of data that they added, less those they removed.
        files_per_day: Data files that they added.
        commits_per_day: All commits, compactions included.
        small_files: Data files that were added by commits whose files were small on average.
    """

    bytes_per_day: float = 0.0
    files_per_day: float = 0.0
    commits_per_day: float = 0.0
    small_files: int = 0


def growth(metadata: TableMetadata, now: datetime, small_below: float) -> Growth:
    """The growth up to now: a table that nobody writes to any more grows less the longer it is looked at.

    Args:
        now: With its zone.
        small_below: Bytes; files smaller than this on average are small.
    """
    kept = list(ancestors(metadata))
    if not kept:
        return Growth()
    # What the oldest one did, it did before the time that is looked at.
    counted = kept[:-1]
    seconds = max(now.timestamp() - kept[-1].timestamp_ms / 1000, _LEAST_SECONDS)
    days = seconds / _DAY_SECONDS
    added = [_added(snapshot) for snapshot in counted]
    return Growth(
        bytes_per_day=max(0.0, sum(net for net, _, _ in added) / days),
        files_per_day=sum(files for _, files, _ in added) / days,
        commits_per_day=len(counted) / days,
        small_files=sum(files for _, files, size in map(_added, kept) if files and size / files < small_below),
    )


def _added(snapshot: Snapshot) -> tuple[int, int, int]:
    """Bytes added less removed, files added, bytes added; nothing for what is only written anew."""
    summary = snapshot.summary
    if summary is None or summary.operation is Operation.REPLACE or BACKFILL_KEY in summary.additional_properties:
        return 0, 0, 0
    counts = summary.additional_properties
    size = int(counts.get("added-files-size", 0))
    return size - int(counts.get("removed-files-size", 0)), int(counts.get("added-data-files", 0)), size
