"""Lineage of snapshots: the ancestors of main's head, as far as they are known after an expiry.

The parent of the oldest remaining snapshot would tell a rollback from an expiry, and it has expired. Two records
replace it. Every stamped commit of any stream sets the table property `frazil.line`, which names the range of frazil's
commits that are known to be each other's ancestors. And the table's older metadata files, as many as it keeps, still
list expired snapshots.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

log = logging.getLogger(__name__)

LINE_PROPERTY = "frazil.line"


@dataclass(frozen=True, slots=True)
class Line:
    """frazil's commits on one table, by any stream, that are known to be ancestors of each other.

    Attributes:
        since: Sequence number of the first of them.
        until: Sequence number of the last of them.
        snapshot_id: A snapshot that descends from all of them: the last one, or a later one.
    """

    since: int
    until: int
    snapshot_id: int

    def covers(self, sequence: int) -> bool:
        """Whether the commit with this sequence number is an ancestor of `snapshot_id`."""
        return self.since <= sequence <= self.until

    def text(self) -> str:
        """The line as the text of the table property."""
        return f"{self.since} {self.until} {self.snapshot_id}"


def line_of(properties: Mapping[str, str]) -> Line | None:
    """Line in the table property; None if it is missing or not in frazil's format."""
    words = properties.get(LINE_PROPERTY, "").split()
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    return Line(*map(int, words))


def last_sequence(metadata: TableMetadata) -> int:
    """Sequence number of the table's newest snapshot on any branch; 0 if the format has none."""
    return getattr(metadata, "last_sequence_number", 0)


def ancestors(metadata: TableMetadata, snapshot_id: int | None = None) -> Iterator[Snapshot]:
    """A snapshot and its ancestors, newest first, up to the first whose parent has expired."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    if snapshot_id is None and (head := metadata.refs.get(MAIN_BRANCH)):
        snapshot_id = head.snapshot_id
    snapshot = by_id.get(snapshot_id or -1)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)


def stands_on(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Whether main's head is known to be a snapshot, or to descend from it."""
    return any(snapshot_id in (each.snapshot_id, each.parent_snapshot_id) for each in ancestors(metadata))


def extended_line(metadata: TableMetadata, snapshot_id: int) -> Line | None:
    """The line extended by the next commit on main's head; None if the table's format has no sequence numbers."""
    sequence = metadata.next_sequence_number()
    before = line_of(metadata.properties)
    if not sequence:
        return None
    since = before.since if before and stands_on(metadata, before.snapshot_id) else sequence
    return Line(since, sequence, snapshot_id)


def line_at_head(metadata: TableMetadata) -> Line | None:
    """The line extended to the current head, which others may have committed; None if that adds nothing.

    Set it before an expiry removes the snapshots that prove it.
    """
    before, head = line_of(metadata.properties), next(ancestors(metadata), None)
    if before is None or head is None or head.snapshot_id == before.snapshot_id:
        return None
    return Line(before.since, before.until, head.snapshot_id) if stands_on(metadata, before.snapshot_id) else None


def older_versions(table: Table) -> Iterator[TableMetadata]:
    """Former versions of the table's metadata that still exist, newest first."""
    for entry in reversed(table.metadata.metadata_log):
        try:
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except (FileNotFoundError, PermissionError) as problem:
            log.info("table %s: an older version of its metadata is missing: %s", ".".join(table.name()), problem)
            return


def expired_ancestors(oldest: Snapshot, older: Iterator[TableMetadata]) -> Iterator[Snapshot | None]:
    """Expired ancestors of a snapshot, newest first, as far as older versions of the metadata list them.

    Args:
        oldest: The oldest remaining ancestor of the head.
        older: Older versions of the metadata, newest first.

    Yields:
        Expired ancestors; None at last if the one before has no parent.
    """
    at = oldest
    for metadata in older:
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        known = by_id.get(at.snapshot_id)
        if at.parent_snapshot_id is None and known is None:
            # It was committed after this version, and never had a parent.
            yield None
            return
        # PyIceberg's expiry removes the parent of the oldest snapshot that it keeps. An older version still names it.
        at = known if known is not None and at.parent_snapshot_id is None else at
        while (parent := by_id.get(at.parent_snapshot_id or -1)) is not None:
            at = parent
            yield at
