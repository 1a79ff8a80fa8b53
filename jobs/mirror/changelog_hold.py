"""Hold of a mirror on its changelog: snapshots that it has not merged stay, as for any registered reader.

The property moves on seldom: each change of it is a commit on the changelog, which the stream has to make room for.
Where it stands behind, more stays than is needed, never less.
"""

from __future__ import annotations

from datetime import timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from jobs.commit.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.commit.errors import CommitRefusedError
from jobs.maintain.table_properties import READER_PREFIX

EVERY = timedelta(minutes=10)


def hold_property(mirror: str) -> str:
    """The changelog's property that says from where a mirror goes on."""
    return f"{READER_PREFIX}mirror.{mirror}"


def hold_changelog(
    catalog: Catalog, changelog: str, stream: str, mirror: str, snapshot_id: int, *, every: timedelta = EVERY
) -> bool:
    """Note on the changelog that a mirror goes on from a snapshot; returns whether it was noted.

    Args:
        snapshot_id: Through which the mirror has all changes.
        every: Nothing is noted as long as the mirror has come less far than this since it was.

    Raises:
        CommitRefusedError: Others committed to the changelog each time; what was noted before stands.
    """
    name = hold_property(mirror)

    def attempt() -> bool:
        table = catalog.load_table(changelog)
        if not _is_due(table, table.metadata.properties.get(name, ""), snapshot_id, every):
            return False
        with conflicts_as_moved_head(), table.transaction() as change:
            change.set_properties({name: str(snapshot_id)})
        return True

    def given_up(said: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"stream {stream}: how far mirror {mirror} has its changelog was not noted there: {said}",
            fix=f"frazil mirror run {stream}",
        )

    return compare_and_swap(changelog, attempt, given_up)


def _is_due(table: Table, noted: str, snapshot_id: int, every: timedelta) -> bool:
    if noted == str(snapshot_id):
        return False
    before = table.metadata.snapshot_by_id(int(noted)) if noted.isdigit() else None
    now = table.metadata.snapshot_by_id(snapshot_id)
    return before is None or now is None or now.timestamp_ms - before.timestamp_ms >= every.total_seconds() * 1000
