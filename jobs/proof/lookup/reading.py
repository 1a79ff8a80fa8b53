"""Readings of a table as it was: which snapshot has a commit's rows, whether main has it, how to ask for it. Pure.

The commands are for people to copy: SQL of Spark, and a line of PyIceberg.
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
"""A column, and the value that it has to have."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Columns and tables are called so, and strict SQL takes them for its own words.
_SQL_WORDS = frozenset({"offset", "order", "partition", "table", "timestamp", "user"})


@dataclass(frozen=True, slots=True)
class Reading:
    """Where the rows of a commit can be read.

    Attributes:
        snapshot_id: The snapshot to read; another one than was asked for if that has expired.
        committed_at: When it was committed.
        exact: Whether it is the one that was asked for.
        at: The instant by which `TIMESTAMP AS OF` finds just this one; None if no instant does.
        tags: The tags that name it.
    """

    snapshot_id: int
    committed_at: datetime
    exact: bool
    at: datetime | None
    tags: tuple[str, ...] = ()


def reading(metadata: TableMetadata, snapshot_id: int, sequence: int) -> Reading | None:
    """Where the rows can be read that a commit brought.

    Args:
        snapshot_id: The commit's; 0 if it had expired before anybody noted it.
        sequence: Iceberg's sequence number of it.

    Returns:
        The snapshot itself, or, once it has expired, the oldest that is left of those that stand on it, or that was
        issued again for it; None if the table has neither.
    """
    found = metadata.snapshot_by_id(snapshot_id) if snapshot_id else None
    if found is not None:
        return _reading(metadata, found, exact=True)
    along = list(ancestors(metadata))
    again = [(at, mark.snapshot) for at, each in enumerate(along) if (mark := reissued(each)) is not None]
    if again:
        # What was committed before a branch was remade stands on it since, and main's older snapshots may lack it.
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
    """The id of the snapshot that main stood at, at an instant; None before the oldest that is known.

    By the table's own log, as `TIMESTAMP AS OF` goes.
    """
    before = [entry.snapshot_id for entry in metadata.snapshot_log if entry.timestamp_ms <= milliseconds]
    return before[-1] if before else None


def instant(milliseconds: int) -> datetime:
    """An instant of milliseconds since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def spark_sql(
    catalog: str, table: str, found: Reading | None, conditions: Sequence[Condition], *, by: str = "version"
) -> str:
    """A SELECT of Spark.

    Args:
        catalog: Its name in the settings, which is its name in Spark.
        found: None: the table as it is now.
        conditions: All of them have to hold.
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
    """A row filter of PyIceberg's, as text; empty without a condition."""
    return " and ".join(f"{_pyiceberg_name(column)} = {_literal(value)}" for column, value in conditions)


def pyiceberg_line(catalog: str, table: str, found: Reading | None, conditions: Sequence[Condition]) -> str:
    """A line of Python that reads the rows."""
    return f'load_catalog("{catalog}").load_table("{table}").{pyiceberg_scan(found, conditions)}.to_arrow()'


def pyiceberg_scan(found: Reading | None, conditions: Sequence[Condition]) -> str:
    """The call that selects the rows."""
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
