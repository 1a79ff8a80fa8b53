"""Tags of a table: names of snapshots that expiry keeps, with their author and end.

Iceberg's references cannot hold a reason. A table property of the same commit has author and reason.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.update.snapshot import ManageSnapshots

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.proof.lookup.reading import instant
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.stamp.errors import CommitRefusedError

TAG_PREFIX = "frazil.tag."
"""Prefix of a table property, followed by a tag's name: author, time and reason of the tag."""
_DEFAULT_AGE = "history.expire.max-ref-age-ms"


class TagNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Record of a tag.

    Attributes:
        by: Author.
        at: Seconds since 1970.
        note: Reason, in the author's words.
    """

    by: str
    at: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag.

    Attributes:
        committed_at: Commit time of its snapshot; None if that has expired.
        until: Time from which an expiry removes it; None if it stays until it is deleted.
        made: Record of its creation; None for tags of other tools.
    """

    name: str
    snapshot_id: int
    committed_at: datetime | None
    until: datetime | None
    made: TagNote | None

    @property
    def reason(self) -> str:
        """Reason why its snapshot stays, a sentence without its full stop."""
        until = f" until {self.until:%Y-%m-%d %H:%M} UTC" if self.until else ""
        made = self.made
        by = f" by {made.by}" if made else ""
        note = f": {made.note}" if made and made.note else ""
        return f"snapshot {self.snapshot_id} is tagged{by}{until}{note}"


def tags_of(metadata: TableMetadata) -> list[Tag]:
    """The tags of a table, by name."""
    refs = sorted(metadata.refs.items())
    return [_tag(metadata, name, ref) for name, ref in refs if ref.snapshot_ref_type == SnapshotRefType.TAG]


def _tag(metadata: TableMetadata, name: str, ref: SnapshotRef) -> Tag:
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    at = instant(snapshot.timestamp_ms) if snapshot else None
    return Tag(name, ref.snapshot_id, at, ends_at(metadata, ref), _note(metadata.properties, name))


def ends_at(metadata: TableMetadata, ref: SnapshotRef) -> datetime | None:
    """Time from which Iceberg's expiry drops a tag or branch, by the age of its snapshot; None: never."""
    age = ref.max_ref_age_ms
    if age is None:
        text = metadata.properties.get(_DEFAULT_AGE, "")
        age = int(text) if text.isdigit() else None
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if age is None or snapshot is None:
        return None
    with contextlib.suppress(OverflowError):
        return instant(snapshot.timestamp_ms) + timedelta(milliseconds=age)
    return None


def _note(properties: Mapping[str, str], name: str) -> TagNote | None:
    with contextlib.suppress(*DAMAGED):
        return decode_json(properties.get(TAG_PREFIX + name, ""), TagNote)
    return None


# Characters that SQL, file systems and URLs accept unquoted. Spark would take a number for a snapshot id.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def check_tag_name(name: str) -> None:
    """Check that a name is valid.

    Raises:
        FrazilError: It is not.
    """
    if not _NAME.fullmatch(name):
        raise FrazilError(
            f"'{name}' cannot be the name of a tag.",
            fix="letters, digits, _, . and -, at most 100 of them, beginning with a letter: end-of-2026",
        )


def tag_snapshot(
    catalog: Catalog, table: str, name: str, snapshot_id: int, *, keep: timedelta | None, note: str, by: str
) -> tuple[Tag, bool]:
    """Tag a snapshot, which keeps it from expiry.

    If the tag exists already on the same snapshot, only the given values change.

    Args:
        keep: Time from now on; None: until it is deleted.

    Returns:
        The tag, and whether anything changed.

    Raises:
        FrazilError: The name is taken or invalid, or the snapshot does not exist.
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
        # Iceberg counts a tag's age from its snapshot's time, not from its creation.
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


def existing_tag(catalog: Catalog, table: str, name: str, *, fix: str | None = None) -> Tag:
    """Tag of a table by its name.

    Args:
        fix: Command that lists the table's tags.

    Raises:
        FrazilError: There is no such tag.
    """
    return _known(catalog.load_table(table), table, name, fix)


def _known(loaded: Table, table: str, name: str, fix: str | None) -> Tag:
    known = _existing(loaded, table, name)
    if known is None:
        has = ", ".join(each.name for each in tags_of(loaded.metadata)) or "none"
        raise FrazilError(f"table {table} has no tag {name}; it has {has}.", fix=fix)
    return known


def delete_tag(catalog: Catalog, table: str, name: str, *, fix: str | None = None) -> Tag:
    """Delete a tag, so that its snapshot expires like others; returns the tag.

    Args:
        fix: Command that lists the table's tags.

    Raises:
        FrazilError: There is no such tag.
    """

    def attempt() -> Tag:
        loaded = catalog.load_table(table)
        known = _known(loaded, table, name, fix)
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
