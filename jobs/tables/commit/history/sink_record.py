"""Record of the Iceberg sink from which a stream took over, and the sink's offsets in snapshot summaries.

The record is a property of the stream's coordinator table.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Mapping
from typing import Literal

import msgspec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.base.system.typed_json import decode_json
from jobs.tables.commit.history.lineage import ancestors

SINK_OFFSETS = "kafka.connect.offsets."
"""Prefix of the keys in snapshot summaries under which an Iceberg sink keeps the offsets of its control topic."""
TAKEOVER_PREFIX = "frazil.takeover."
"""Prefix of the property of a coordinator with the record of a stream's takeover."""
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]")

Generation = Literal["apache", "tabular"]
ControlOffsets = Mapping[int, int]
"""Next offset of each partition of a control topic."""


def floor_key(control_topic: str, group: str) -> str:
    """The key of snapshot summaries under which a sink keeps the offsets of its control topic.

    Args:
        group: Apache's sink: the Connect group. Tabular's: the control group.
    """
    return f"{SINK_OFFSETS}{control_topic}.{group}"


def control_offsets(snapshot: Snapshot, key: str) -> dict[int, int] | None:
    """Offsets of the control topic in a snapshot's summary; None if the snapshot is not of the sink.

    Args:
        key: See `floor_key`.
    """
    text = snapshot.summary.additional_properties.get(key) if snapshot.summary else None
    return {int(partition): int(at) for partition, at in json.loads(text).items()} if text else None


class TakeoverRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sink from which a stream has its position.

    Attributes:
        connector, generation, member_group, offset_group, event_group, control_topic: As in
            `jobs.migration.takeover.sink.Sink`.
        at: Seconds since 1970.
        by: Who took over, and why.
        handed_back: When the sink got the position back, seconds since 1970; None if it did not.
        control_end: End of the control topic at the last hand-back: next offsets by its partitions.
        floor: End of the control topic at the takeover. A later commit of the sink has a higher offset. Empty in
            records of earlier versions, see `tagged_floor`.
    """

    connector: str
    generation: Generation
    member_group: str
    offset_group: str
    event_group: str
    control_topic: str
    at: float
    by: str
    handed_back: float | None = None
    control_end: dict[int, int] = msgspec.field(default_factory=dict)
    floor: dict[int, int] = msgspec.field(default_factory=dict)

    def properties(self, stream: str) -> dict[str, str]:
        """As properties of the stream's coordinator table."""
        return {f"{TAKEOVER_PREFIX}{stream}": msgspec.json.encode(self).decode()}


def takeover_record(metadata: TableMetadata, stream: str) -> TakeoverRecord | None:
    """Record of a stream's takeover on its coordinator table; None if there is none."""
    text = metadata.properties.get(f"{TAKEOVER_PREFIX}{stream}")
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        return decode_json(text, TakeoverRecord) if text else None
    return None


def tag_name(connector: str) -> str:
    """Name of the tag on a sink's last snapshot before a takeover. A later takeover adds `-2`, and so on."""
    return f"connect-{_NOT_IN_NAMES.sub('-', connector)}"[:90]


def tagged_floor(metadata: TableMetadata, record: TakeoverRecord) -> dict[int, int]:
    """Highest offsets of the control topic at the tags on the sink's last snapshots; empty without such a tag.

    Earlier versions recorded no floor, but set the tags.
    """
    name = re.compile(re.escape(tag_name(record.connector)) + r"(-\d+)?")
    tags = [
        ref.snapshot_id
        for tag, ref in metadata.refs.items()
        if ref.snapshot_ref_type == SnapshotRefType.TAG and name.fullmatch(tag)
    ]
    highest: dict[int, int] = {}
    for snapshot in (snapshot for tag in tags for snapshot in ancestors(metadata, tag)):
        offsets = control_offsets(snapshot, floor_key(record.control_topic, record.event_group)) or {}
        highest |= {partition: max(at, highest.get(partition, 0)) for partition, at in offsets.items()}
    return highest


def is_commit_since_takeover(snapshot: Snapshot, record: TakeoverRecord) -> bool:
    """Whether a snapshot is a commit that the sink made after the takeover.

    The sink's own offsets decide, not clocks: a copy of an earlier summary has offsets from before the takeover.
    Compaction, and frazil's own snapshots with the sink's key, do not count.
    """
    if snapshot.summary is None or snapshot.summary.operation is Operation.REPLACE:
        return False
    if any(key.startswith("frazil.") for key in snapshot.summary.additional_properties):
        return False
    offsets = control_offsets(snapshot, floor_key(record.control_topic, record.event_group)) or {}
    return any(at > record.floor.get(partition, 0) for partition, at in offsets.items())


def commits_since_takeover(metadata: TableMetadata, record: TakeoverRecord) -> list[Snapshot]:
    """Commits that the sink made after a takeover, oldest first; none if it was handed back or is not watched.

    A table is not watched if the record has no floor, and somebody has dropped the tag.

    Args:
        metadata: As the stream's branch has them.
    """
    if record.handed_back is not None:
        return []
    if not record.floor:
        record = msgspec.structs.replace(record, floor=tagged_floor(metadata, record))
    if not record.floor:
        return []
    return [snapshot for snapshot in ancestors(metadata) if is_commit_since_takeover(snapshot, record)][::-1]
