"""Floor of a sink in a table: up to where the control topic has been applied, by the table's snapshots.

The sink writes the next offsets of the control topic into the summary of each of its snapshots. It walks back from the
head of its branch to the first snapshot that has them, and commits nothing that was announced below.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.streaming.driver.tables.previous_targets import SINK_OFFSETS
from jobs.tables.commit.history.lineage import ancestors

ControlOffsets = Mapping[int, int]
"""Next offset of each partition of a control topic."""


def floor_key(control_topic: str, group: str) -> str:
    """The key of snapshot summaries under which a sink keeps the offsets of its control topic.

    Args:
        group: Apache's sink: the Connect group. Tabular's: the control group.
    """
    return f"{SINK_OFFSETS}{control_topic}.{group}"


@dataclass(frozen=True, slots=True)
class SinkFloor:
    """Where a table's head stands in the control topic.

    Attributes:
        offsets: None if no ancestor of the head has the sink's key.
        snapshot_id: Snapshot that has them.
        sequence: Sequence number of that snapshot; 0 without one.
        whole: The head's history reaches back to the table's first snapshot, so without a floor the sink has
            never committed.
        elsewhere: Snapshots with the sink's key that are no ancestors of the head and came later than the floor; the
            table was rolled back, or replaced.
    """

    offsets: ControlOffsets | None
    snapshot_id: int | None = None
    sequence: int = 0
    whole: bool = True
    elsewhere: tuple[int, ...] = field(default=())

    @property
    def known(self) -> bool:
        """Whether it is certain what the table has of the sink's announcements."""
        return self.offsets is not None or self.whole

    def of(self, partition: int) -> int:
        """Next offset of a partition of the control topic; 0 where nothing was applied."""
        return (self.offsets or {}).get(partition, 0)


def sink_floor(metadata: TableMetadata, key: str) -> SinkFloor:
    """Read a table's floor.

    Args:
        metadata: As the sink's branch has them.
        key: See `floor_key`.
    """
    along = list(ancestors(metadata))
    ids = {each.snapshot_id for each in along}
    found = next((each for each in along if _offsets(each, key) is not None), None)
    sequence = (found.sequence_number or 0) if found else 0
    elsewhere = tuple(
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in ids and _offsets(each, key) is not None and (each.sequence_number or 0) > sequence
    )
    if found is not None:
        return SinkFloor(_offsets(found, key), found.snapshot_id, sequence, elsewhere=elsewhere)
    # A replaced table begins anew without a parent, but not with the first sequence number.
    whole = not along or (along[-1].parent_snapshot_id is None and along[-1].sequence_number == 1)
    whole = whole and (bool(along) or getattr(metadata, "last_sequence_number", 0) == 0)
    return SinkFloor(None, whole=whole, elsewhere=elsewhere)


def floor_text(offsets: ControlOffsets) -> str:
    """Offsets as the sink writes them: JSON, partitions as texts."""
    return json.dumps({str(partition): at for partition, at in sorted(offsets.items())}, separators=(",", ":"))


def _offsets(snapshot: Snapshot, key: str) -> dict[int, int] | None:
    text = snapshot.summary.additional_properties.get(key) if snapshot.summary else None
    return {int(partition): int(at) for partition, at in json.loads(text).items()} if text else None
