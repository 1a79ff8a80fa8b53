"""Tagging: a tag is made or deleted in one commit on exactly what was read, or read again, beside any other writer."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update.snapshot import ManageSnapshots

from jobs.commit.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.commit.errors import CommitRefusedError
from jobs.errors import FrazilError
from jobs.steps import step
from jobs.time_travel.reading import instant
from jobs.time_travel.tags import TAG_PREFIX, Tag, TagNote, tags_of

# What SQL, file systems and URLs take as it is. A number would be a snapshot's id to Spark.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def check_tag_name(name: str) -> None:
    """See that a name will do.

    Raises:
        FrazilError: It will not.
    """
    if not _NAME.fullmatch(name):
        raise FrazilError(
            f"'{name}' cannot be the name of a tag.",
            fix="letters, digits, _, . and -, at most 100 of them, beginning with a letter: end-of-2026",
        )


def tag_snapshot(
    catalog: Catalog, table: str, name: str, snapshot_id: int, *, keep: timedelta | None, note: str, by: str
) -> tuple[Tag, bool]:
    """Give a snapshot a name, which keeps it from expiry.

    Where the tag is there already, of the same snapshot, only what is given is changed.

    Args:
        keep: How long from now on; None: until it is deleted.
        note: Why.
        by: Who.

    Returns:
        The tag, and whether anything was changed.

    Raises:
        FrazilError: The name is taken, or will not do, or the snapshot is gone.
    """
    check_tag_name(name)

    def attempt() -> tuple[Tag, bool]:
        loaded = catalog.load_table(table)
        known = _existing(loaded, table, name)
        if known is not None and known.snapshot_id != snapshot_id:
            raise FrazilError(
                f"table {table} has a tag {name} already, of snapshot {known.snapshot_id}.",
                fix=f"another name; or delete it first, with --delete, if nobody reads {name}",
            )
        snapshot = loaded.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise FrazilError(
                f"snapshot {snapshot_id} of table {table} has expired, or never was.",
                fix="tag one that is left, such as the newest, which is the default",
            )
        if known is not None and keep is None and not note:
            return known, False
        # Iceberg counts a tag's age from its snapshot on, not from its making.
        age = None if keep is None else datetime.now(UTC) - instant(snapshot.timestamp_ms) + keep
        before = loaded.metadata.refs[name].max_ref_age_ms if known is not None else None
        made = TagNote(by, time.time(), note or (known.made.note if known is not None and known.made else ""))
        step("tag_before_commit")
        with conflicts_as_moved_head(), loaded.transaction() as change:
            change.set_properties({TAG_PREFIX + name: msgspec.json.encode(made).decode()})
            ManageSnapshots(change).create_tag(
                snapshot_id, name, max_ref_age_ms=before if age is None else max(1, int(age.total_seconds() * 1000))
            ).commit()
        step("tag_after_commit")
        return next(each for each in tags_of(loaded.metadata) if each.name == name), True

    return compare_and_swap(table, attempt, _given_up)


def delete_tag(catalog: Catalog, table: str, name: str, *, fix: str | None = None) -> Tag:
    """Take a name off its snapshot, which then expires as others do; returns what it was.

    Args:
        fix: The command that lists the table's tags.

    Raises:
        FrazilError: There is no such tag.
    """

    def attempt() -> Tag:
        loaded = catalog.load_table(table)
        known = _existing(loaded, table, name)
        if known is None:
            has = ", ".join(each.name for each in tags_of(loaded.metadata)) or "none"
            raise FrazilError(f"table {table} has no tag {name}; it has {has}.", fix=fix)
        step("tag_before_commit")
        with conflicts_as_moved_head(), loaded.transaction() as change:
            ManageSnapshots(change).remove_tag(name).commit()
            if TAG_PREFIX + name in loaded.metadata.properties:
                change.remove_properties(TAG_PREFIX + name)
        step("tag_after_commit")
        return known

    return compare_and_swap(table, attempt, _given_up)


def _existing(table: Table, name_of_table: str, name: str) -> Tag | None:
    ref = table.metadata.refs.get(name)
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.TAG:
        raise FrazilError(f"{name} is a branch of table {name_of_table}, and no tag.", fix="another name")
    return next((each for each in tags_of(table.metadata) if each.name == name), None)


def _given_up(said: str) -> CommitRefusedError:
    return CommitRefusedError(said, fix="nothing was changed: do it again once fewer others write to it")
