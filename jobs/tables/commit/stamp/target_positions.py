"""Target positions: the position of each target of a stream, and what it still needs of a batch. Pure functions.

The rule, per (topic, partition), for a batch `[start, end)` and a target that stands at `position`:

- `end <= position`: the target has it all; skip.
- `start <= position < end`: write what is at or past `position`.
- `start > position`: a gap; records would be passed over, so the batch is refused.
- no position at all: the partition is new to the stream; write it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jobs.tables.commit.stamp.offsets import (
    Gap,
    OffsetRange,
    Positions,
    Ranges,
    TopicPartition,
    pointwise_max,
)
from jobs.tables.commit.stamp.stamps import Stamp

NewestStamps = Mapping[str, Stamp | None]


@dataclass(frozen=True, slots=True)
class TargetNeed:
    """What a target needs of a batch.

    Attributes:
        skip: Partitions that the target has entirely.
        floors: First needed offset of partitions that the target has in part.
        whole: Whether it needs every record of every partition.
        nothing: Whether it needs none; also true for a batch without records.
        gaps: Records that would be passed over; the batch must be refused.
    """

    skip: frozenset[TopicPartition] = frozenset()
    floors: Mapping[TopicPartition, int] = field(default_factory=dict)
    whole: bool = True
    nothing: bool = False
    gaps: tuple[Gap, ...] = ()

    def same_part(self, other: TargetNeed) -> bool:
        """True if both need the same records of a batch."""
        return self.skip == other.skip and dict(self.floors) == dict(other.floors)


def need(batch: Ranges, position: Positions) -> TargetNeed:
    """What a target needs of a batch, by the module's rule; partitions with an empty range do not count."""
    skip: set[TopicPartition] = set()
    floors: dict[TopicPartition, int] = {}
    gaps: list[Gap] = []
    asked = 0
    for partition, (start, end) in sorted(batch.items()):
        if start >= end:
            continue
        asked += 1
        stands = position.get(partition)
        if stands is None:
            continue
        if end <= stands:
            skip.add(partition)
        elif start > stands:
            gaps.append(Gap(partition, OffsetRange(stands, start)))
        elif stands > start:
            floors[partition] = stands
    return TargetNeed(frozenset(skip), floors, not skip and not floors, len(skip) == asked, tuple(gaps))


def of_known_topics(stamps: NewestStamps, anchor: str) -> dict[str, Stamp | None]:
    """The newest stamps without topics that the coordinator's stamp does not know: those are retired."""
    anchored = stamps.get(anchor)
    return {name: stamp.known_to(anchored) if stamp and name != anchor else stamp for name, stamp in stamps.items()}


def target_positions(stamps: NewestStamps, anchor: str) -> dict[str, dict[TopicPartition, int]]:
    """Position of each target, by the newest stamps.

    That is the greatest of three: its own position, the newest `start` on any target (which proves all complete up to
    it), and the coordinator's position if the coordinator's batch had no rows for this target.
    """
    proven = pointwise_max(stamp.start for stamp in stamps.values() if stamp)
    anchored = stamps.get(anchor)
    positions: dict[str, dict[TopicPartition, int]] = {}
    for target, stamp in stamps.items():
        known: list[Positions] = [proven]
        if stamp:
            known.append(stamp.position)
        if anchored and not anchored.rows.get(target):
            known.append(anchored.position)
        positions[target] = pointwise_max(known)
    return positions


def restart_positions(positions: Mapping[str, Positions]) -> dict[TopicPartition, int]:
    """First offsets to read of a stream: per partition the least of its targets' positions.

    A partition that some target does not know begins where the others know it.
    """
    known = pointwise_max(positions.values())
    return {partition: min(each[partition] for each in positions.values() if partition in each) for partition in known}
