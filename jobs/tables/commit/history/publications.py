"""Publications of a stream: what main has of its branch, as the stamps of main and the table's properties say.

A publication is stamped as a batch of its own kind of stream, `<stream>~publish`, on main: its position is the sequence
number through which main has the branch. So a rollback of main, an expiry and two publishers at once are told apart by
the same rules as for any stream.
"""

from __future__ import annotations

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.tables.commit.history.stamp_history import History, history, history_of
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import PUBLISH_PART, Stamp

# Where a stream has the offsets of a partition, its publications have sequence numbers of the table.
THROUGH = TopicPartition("publish", 0)


def publication_id(stream: str) -> str:
    """The id under which publications of a stream are stamped; no stream can have it."""
    return stream + PUBLISH_PART


def publications(table: Table, stream: str) -> History:
    """What main says of a stream's publications.

    Args:
        table: As it is, not as a branch has it.
    """
    return history_of(table, publication_id(stream))


def published_through(metadata: TableMetadata, stream: str, branch: str) -> int | None:
    """The sequence number through which main has a branch of the stream; None if nothing of it was ever published."""
    newest = history(metadata, publication_id(stream)).newest
    return branch_through(newest, branch) if newest else None


def branch_through(stamp: Stamp | None, branch: str) -> int:
    """The sequence number through which one branch was published; 0 without a publication of it.

    A stamp of an earlier version names no branch, and is taken to be of the one that is asked for.
    """
    return stamp.published.get(branch, 0) if stamp and stamp.published else through(stamp)


def through(stamp: Stamp | None) -> int:
    """What a publication's stamp says; 0 without one."""
    return stamp.position.get(THROUGH, 0) if stamp else 0
