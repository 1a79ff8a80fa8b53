"""Floor of a sink in a table: up to where the control topic has been applied, by the table's snapshots.

The sink writes the next offsets of the control topic into the summary of each of its snapshots. It walks back from the
head of its branch to the first snapshot that has them, and commits nothing that was announced below.

The newest snapshot alone is not enough. Releases that do not merge offsets write only the partitions that the
coordinator has read since its start. A second coordinator writes lower offsets than the first. So the floor of a
partition is the highest of all ancestors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.sink_record import ControlOffsets, control_offsets


@dataclass(frozen=True, slots=True)
class SinkFloor:
    """Position of a table's head in the control topic.

    Attributes:
        offsets: Highest next offset of each partition among the head's ancestors; None if none has the sink's key.
        snapshot_id: Newest snapshot that has the key.
        sequence: Sequence number of that snapshot; 0 without one.
        whole: The head's history reaches back to the table's first snapshot. So the sink has committed nothing of a
            partition without a floor.
        elsewhere: Snapshots with the sink's key that are no ancestors of the head and came later than the floor. The
            table was rolled back or replaced.
    """

    offsets: ControlOffsets | None
    snapshot_id: int | None = None
    sequence: int = 0
    whole: bool = True
    elsewhere: tuple[int, ...] = ()

    def knows(self, partition: int) -> bool:
        """Whether it is certain what the table has of the announcements in a partition of the control topic."""
        return self.whole or partition in (self.offsets or {})

    def of(self, partition: int) -> int:
        """Next offset of a partition of the control topic; 0 where nothing was applied."""
        return (self.offsets or {}).get(partition, 0)


def sink_floor(metadata: TableMetadata, key: str) -> SinkFloor:
    """Read a table's floor.

    Args:
        metadata: As the sink's branch has them.
        key: See `jobs.tables.commit.history.sink_record.floor_key`.
    """
    lineage = list(ancestors(metadata))
    ids = {snapshot.snapshot_id for snapshot in lineage}
    with_key = [(snapshot, offsets) for snapshot in lineage if (offsets := control_offsets(snapshot, key)) is not None]
    highest: dict[int, int] = {}
    for _, offsets in with_key:
        highest |= {partition: max(at, highest.get(partition, 0)) for partition, at in offsets.items()}
    newest = with_key[0][0] if with_key else None
    sequence = (newest.sequence_number or 0) if newest else 0
    elsewhere = tuple(
        snapshot.snapshot_id
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id not in ids
        and control_offsets(snapshot, key) is not None
        and _came_later(snapshot, newest)
    )
    # The first snapshot of a replaced table has no parent either, but a later sequence number.
    whole = not lineage or (lineage[-1].parent_snapshot_id is None and lineage[-1].sequence_number == 1)
    whole = whole and (bool(lineage) or getattr(metadata, "last_sequence_number", 0) == 0)
    return SinkFloor(highest if with_key else None, newest.snapshot_id if newest else None, sequence, whole, elsewhere)


def floor_text(offsets: ControlOffsets) -> str:
    """Offsets as the sink writes them: JSON, partitions as texts."""
    return json.dumps({str(partition): at for partition, at in sorted(offsets.items())}, separators=(",", ":"))


def _came_later(snapshot: Snapshot, reference: Snapshot | None) -> bool:
    # Snapshots of format version 1 have no sequence number. Their times order them.
    return reference is None or _age_key(snapshot) > _age_key(reference)


def _age_key(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number or 0, snapshot.timestamp_ms
