"""Publications of a stream: how far main has the branch, read from main's stamps and the table's properties.

A publication is stamped on main like a batch of a stream named `<stream>~publish`. Its position is the sequence number
through which main has the branch. So the rules of any stream also tell a rollback of main from an expiry, and fence a
second publisher.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.tables.commit.history.stamp_history import History, history, history_of
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import PUBLISH_PART, Stamp

# Publications have sequence numbers where batches have offsets.
THROUGH = TopicPartition("publish", 0)


def publication_id(stream: str) -> str:
    """Id under which publications of a stream are stamped; no stream can have it."""
    return stream + PUBLISH_PART


def publications(table: Table, stream: str) -> History:
    """History of a stream's publications on main.

    Args:
        table: The whole table, not seen from a branch.
    """
    return history_of(table, publication_id(stream))


def published_through(metadata: TableMetadata, stream: str, branch: str) -> int | None:
    """Sequence number through which main has the stream's branch; None if nothing of it was ever published."""
    newest = history(metadata, publication_id(stream)).newest
    return branch_through(newest, branch) if newest else None


def branch_through(stamp: Stamp | None, branch: str) -> int:
    """Sequence number through which a branch was published; 0 if it never was.

    If the stamp is of an earlier version it names no branch, and counts for any branch.
    """
    return stamp.published.get(branch, 0) if stamp and stamp.published else through(stamp)


def through(stamp: Stamp | None) -> int:
    """Sequence number in a publication's stamp; 0 without a stamp."""
    return stamp.position.get(THROUGH, 0) if stamp else 0
