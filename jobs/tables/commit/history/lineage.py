"""Lineage of snapshots: which ones the head of main came from, also where some of them have expired.

An expired snapshot takes along what tells a rollback from an expiry: whose child the oldest snapshot is that is left.
Two things still tell. `frazil.line`, a table property that every stamped commit of any stream sets, says from where on
frazil's commits on the table are known to stand on each other. And the older versions of the table's metadata, as many
of them as the table keeps, still list what has expired since.
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
    """Frazil's commits on one table, by any stream, as far as they are known to stand on each other.

    Attributes:
        since: Sequence number of the first of them.
        until: Sequence number of the last of them.
        snapshot_id: A snapshot that all of them are ancestors of: the last one, or one that came after it.
    """

    since: int
    until: int
    snapshot_id: int

    def covers(self, sequence: int) -> bool:
        """Whether the commit with this sequence number is an ancestor of `snapshot_id`."""
        return self.since <= sequence <= self.until

    def text(self) -> str:
        """As the table property."""
        return f"{self.since} {self.until} {self.snapshot_id}"


def line_of(properties: Mapping[str, str]) -> Line | None:
    """What the table property says; None if there is none, or somebody wrote something else there."""
    words = properties.get(LINE_PROPERTY, "").split()
    if len(words) != 3 or not all(word.isdigit() for word in words):
        return None
    return Line(*map(int, words))


def last_sequence(metadata: TableMetadata) -> int:
    """The sequence number of the table's newest snapshot, on any branch; 0 by a format that has none."""
    return getattr(metadata, "last_sequence_number", 0)


def ancestors(metadata: TableMetadata, snapshot_id: int | None = None) -> Iterator[Snapshot]:
    """A snapshot and its ancestors, newest first, up to the first whose parent is not there any more."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    if snapshot_id is None and (head := metadata.refs.get(MAIN_BRANCH)):
        snapshot_id = head.snapshot_id
    snapshot = by_id.get(snapshot_id or -1)
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id or -1)


def stands_on(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Whether the head of main is known to come after a snapshot, or to be it."""
    return any(snapshot_id in (each.snapshot_id, each.parent_snapshot_id) for each in ancestors(metadata))


def extended_line(metadata: TableMetadata, snapshot_id: int) -> Line | None:
    """The line with the next commit on the head of main; None on a table whose format has no sequence numbers."""
    sequence = metadata.next_sequence_number()
    before = line_of(metadata.properties)
    if not sequence:
        return None
    since = before.since if before and stands_on(metadata, before.snapshot_id) else sequence
    return Line(since, sequence, snapshot_id)


def line_at_head(metadata: TableMetadata) -> Line | None:
    """The line as known of the present head, which others may have committed; None if that says nothing new.

    To be set before snapshots expire by which it is known.
    """
    before, head = line_of(metadata.properties), next(ancestors(metadata), None)
    if before is None or head is None or head.snapshot_id == before.snapshot_id:
        return None
    return Line(before.since, before.until, head.snapshot_id) if stands_on(metadata, before.snapshot_id) else None


def older_versions(table: Table) -> Iterator[TableMetadata]:
    """The former versions of the table's metadata that are still there, newest first."""
    for entry in reversed(table.metadata.metadata_log):
        try:
            yield FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except (FileNotFoundError, PermissionError) as problem:
            log.info("table %s: an older version of its metadata is gone: %s", ".".join(table.name()), problem)
            return


def expired_ancestors(oldest: Snapshot, older: Iterator[TableMetadata]) -> Iterator[Snapshot | None]:
    """The ancestors of a snapshot that have expired, newest first, as far as older versions of the metadata know them.

    Args:
        oldest: The oldest ancestor of the head that is left.
        older: Newest first.

    Yields:
        Each of them; None at last if the one before it is known to be the first of its line.
    """
    at = oldest
    for metadata in older:
        by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
        known = by_id.get(at.snapshot_id)
        if at.parent_snapshot_id is None and known is None:
            # It was committed after this version, and had no parent from the first.
            yield None
            return
        # PyIceberg's expiry takes the parent off the oldest snapshot that it keeps; an older version still names it.
        at = known if known is not None and at.parent_snapshot_id is None else at
        while (parent := by_id.get(at.parent_snapshot_id or -1)) is not None:
            at = parent
            yield at
