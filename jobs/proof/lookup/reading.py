"""Readings of a former table state: the snapshot with a commit's rows, whether main has it, and commands to read it.

Pure functions. The commands are for people to copy: Spark SQL, and a line of PyIceberg.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.publications import (
    THROUGH,
    branch_through,
    publication_id,
    published_through,
    through,
)
from jobs.tables.commit.history.reissue import reissued
from jobs.tables.commit.history.stamp_history import stamped_snapshots

Condition = tuple[str, str | int]
"""A column and its required value."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Columns and tables with such names, which strict SQL takes as keywords.
_SQL_WORDS = frozenset({"offset", "order", "partition", "table", "timestamp", "user"})


@dataclass(frozen=True, slots=True)
class Reading:
    """Snapshot from which the rows of a commit can be read.

    Attributes:
        snapshot_id: Snapshot to read; another one than requested if that has expired.
        committed_at: Its commit time.
        exact: Whether it is the requested one.
        at: Instant by which `TIMESTAMP AS OF` finds exactly this snapshot; None if no instant does.
        tags: Tags that name it.
    """

    snapshot_id: int
    committed_at: datetime
    exact: bool
    at: datetime | None
    tags: tuple[str, ...] = ()


def reading(metadata: TableMetadata, snapshot_id: int, sequence: int) -> Reading | None:
    """Snapshot from which the rows of a commit can be read.

    Args:
        snapshot_id: Snapshot of the commit; 0 if it had expired before it was recorded.
        sequence: Sequence number of the commit.

    Returns:
        The snapshot itself; after its expiry, the oldest existing descendant or its copy. None without any.
    """
    found = metadata.snapshot_by_id(snapshot_id) if snapshot_id else None
    if found is not None:
        return _reading(metadata, found, exact=True)
    along = list(ancestors(metadata))
    again = [(at, mark.snapshot) for at, each in enumerate(along) if (mark := reissued(each)) is not None]
    if again:
        # Commits before a branch's rebase are below the copies, and main's older snapshots may lack them.
        at = next((at for at, first in again if first == snapshot_id), None)
        along = along[: (again[-1][0] if at is None else at) + 1]
    later = [each for each in along if (each.sequence_number or 0) >= sequence]
    return _reading(metadata, later[-1], exact=False) if later else None


def _reading(metadata: TableMetadata, snapshot: Snapshot, *, exact: bool) -> Reading:
    at = instant(snapshot.timestamp_ms)
    tags = sorted(
        name
        for name, ref in metadata.refs.items()
        if ref.snapshot_id == snapshot.snapshot_id and ref.snapshot_ref_type == SnapshotRefType.TAG
    )
    by_time = at if current_at(metadata, snapshot.timestamp_ms) == snapshot.snapshot_id else None
    return Reading(snapshot.snapshot_id, at, exact, by_time, tuple(tags))


def current_at(metadata: TableMetadata, milliseconds: int) -> int | None:
    """Id of main's head at an instant; None before the oldest known one.

    It uses the table's own log, like `TIMESTAMP AS OF`.
    """
    before = [entry.snapshot_id for entry in metadata.snapshot_log if entry.timestamp_ms <= milliseconds]
    return before[-1] if before else None


def instant(milliseconds: int) -> datetime:
    """The instant of milliseconds since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def spark_sql(
    catalog: str, table: str, found: Reading | None, conditions: Sequence[Condition], *, by: str = "version"
) -> str:
    """A Spark SELECT.

    Args:
        catalog: Name of the catalog in the settings, and so in Spark.
        found: Reading; None: the present table.
        conditions: Conditions, all of which have to hold.
        by: `version`, or `timestamp`, which needs the reading's `at`.
    """
    name = ".".join(_spark_name(part) for part in (catalog, *table.split(".")))
    as_of = ""
    if found is not None and by == "timestamp" and found.at is not None:
        as_of = f" TIMESTAMP AS OF TIMESTAMP '{found.at:%Y-%m-%dT%H:%M:%S}.{found.at.microsecond // 1000:03d}Z'"
    elif found is not None:
        as_of = f" VERSION AS OF {found.snapshot_id}"
    where = " AND ".join(f"{_spark_name(column)} = {_literal(value)}" for column, value in conditions)
    return f"SELECT * FROM {name}{as_of}" + (f" WHERE {where}" if where else "")


def pyiceberg_filter(conditions: Sequence[Condition]) -> str:
    """A PyIceberg row filter as text; empty without a condition."""
    return " and ".join(f"{_pyiceberg_name(column)} = {_literal(value)}" for column, value in conditions)


def pyiceberg_line(catalog: str, table: str, found: Reading | None, conditions: Sequence[Condition]) -> str:
    """Python line that reads the rows."""
    return f'load_catalog("{catalog}").load_table("{table}").{pyiceberg_scan(found, conditions)}.to_arrow()'


def pyiceberg_scan(found: Reading | None, conditions: Sequence[Condition]) -> str:
    """Call that selects the rows."""
    arguments = [f"snapshot_id={found.snapshot_id}"] if found is not None else []
    if conditions:
        arguments.append(f"row_filter={pyiceberg_filter(conditions)!r}")
    return f"scan({', '.join(arguments)})"


def _spark_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) and name.lower() not in _SQL_WORDS else f"`{name.replace('`', '``')}`"


def _pyiceberg_name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _literal(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


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
        metadata: Metadata of the whole table, not seen from a branch.
        branch: Branch of the commit.
    """
    sequence = _number_now(metadata, branch, sequence)
    if (published_through(metadata, stream, branch) or 0) < sequence:
        return Published(in_main=False, reading=None)
    for snapshot, stamp in stamped_snapshots(metadata, publication_id(stream)):
        own = branch_through(stamp, branch) == through(stamp)
        if stamp.kind == "batch" and own and stamp.start.get(THROUGH, 0) < sequence <= through(stamp):
            return Published(in_main=True, reading=reading(metadata, snapshot.snapshot_id, 0))
    # The publication has expired: all remaining snapshots came after it.
    oldest = list(ancestors(metadata))[-1:]
    return Published(in_main=True, reading=reading(metadata, 0, oldest[0].sequence_number or 0) if oldest else None)


def _number_now(metadata: TableMetadata, branch: str, sequence: int) -> int:
    """Present sequence number of a commit on a branch, which changes if main lacked it at a rebase."""
    ref = metadata.refs.get(branch)
    for each in ancestors(metadata, ref.snapshot_id) if ref else ():
        mark = reissued(each)
        if mark is not None and mark.seq == sequence and not mark.published:
            return each.sequence_number or 0
    return sequence
