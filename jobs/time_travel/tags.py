"""Tags of a table: names for snapshots, which expiry leaves alone; who made them and why, and until when they hold.

Iceberg's references have no room for a reason. Who tagged a snapshot, and why, is a table property of the same commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType

from jobs.state.documents import DAMAGED
from jobs.system.typed_json import decode_json
from jobs.time_travel.reading import instant

TAG_PREFIX = "frazil.tag."
"""Table property `frazil.tag.<name>`: who made the tag, when and why."""
_DEFAULT_AGE = "history.expire.max-ref-age-ms"


class TagNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a tag is there.

    Attributes:
        by: Who made it.
        at: Seconds since 1970.
        note: In that person's words.
    """

    by: str
    at: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class Tag:
    """A tag.

    Attributes:
        committed_at: When its snapshot was committed; None if that is gone.
        until: From when on an expiry takes it; None if it stays until it is deleted.
        made: Who made it; None of tags that were not made by frazil.
    """

    name: str
    snapshot_id: int
    committed_at: datetime | None
    until: datetime | None
    made: TagNote | None

    @property
    def reason(self) -> str:
        """Why its snapshot stays, as a sentence without its full stop."""
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
    """From when on Iceberg's expiry drops a tag or a branch: by its age, which is that of its snapshot; None: never."""
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
