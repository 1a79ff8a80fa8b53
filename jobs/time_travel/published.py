"""Publication of what a stream has landed on its branch: whether main has it, and since which snapshot. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.lineage import ancestors
from jobs.commit.publications import THROUGH, branch_through, publication_id, published_through, through
from jobs.commit.reissue import reissued
from jobs.commit.stamp_history import stamped_snapshots
from jobs.time_travel.reading import Reading, reading


@dataclass(frozen=True, slots=True)
class Published:
    """Whether main has a commit of the branch.

    Attributes:
        reading: The first snapshot of main with it; not exact if that has expired, and None if main lacks it.
    """

    in_main: bool
    reading: Reading | None


def published(metadata: TableMetadata, stream: str, branch: str, sequence: int) -> Published:
    """Whether main has the commit with this sequence number.

    Args:
        metadata: As the table is, not as a branch has it.
        branch: That the commit was made to.
    """
    sequence = _number_now(metadata, branch, sequence)
    if (published_through(metadata, stream, branch) or 0) < sequence:
        return Published(in_main=False, reading=None)
    for snapshot, stamp in stamped_snapshots(metadata, publication_id(stream)):
        own = branch_through(stamp, branch) == through(stamp)
        if stamp.kind == "batch" and own and stamp.start.get(THROUGH, 0) < sequence <= through(stamp):
            return Published(in_main=True, reading=reading(metadata, snapshot.snapshot_id, 0))
    # The publication has expired: all that is left came after it.
    oldest = list(ancestors(metadata))[-1:]
    return Published(in_main=True, reading=reading(metadata, 0, oldest[0].sequence_number or 0) if oldest else None)


def _number_now(metadata: TableMetadata, branch: str, sequence: int) -> int:
    """The sequence number of a commit on a branch; another one than it had, if main lacked it when that was remade."""
    ref = metadata.refs.get(branch)
    for each in ancestors(metadata, ref.snapshot_id) if ref else ():
        mark = reissued(each)
        if mark is not None and mark.seq == sequence and not mark.published:
            return each.sequence_number or 0
    return sequence
