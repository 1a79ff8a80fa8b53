"""What a stream remembers of a log beside its position: the last record that it read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from jobs.commit.offsets import Positions, TopicPartition
from jobs.commit.stamp_parts import by_number


class Mark(NamedTuple):
    """The last record that was read of a partition, as far as it tells a log that goes on from one that was cut.

    Each time a partition gets a leader, Kafka counts its epoch on, and every record keeps the epoch of the leader that
    took it. A log that does not hold this epoch up to here any more has lost what was read, even if it has grown past
    the position since.

    Attributes:
        position: The stream's position that the mark belongs to; at any other it says nothing.
        after: The offset behind the record; below the position where what follows is no record for the stream:
            the mark of a transaction, aborted records, holes of compaction.
        epoch: The leader's epoch of the record.
    """

    position: int
    after: int
    epoch: int


Marks = Mapping[TopicPartition, Mark]


def standing(marks: Marks, position: Positions) -> dict[TopicPartition, Mark]:
    """The marks that belong to these positions."""
    return {partition: mark for partition, mark in marks.items() if position.get(partition) == mark.position}


def pack_marks(marks: Marks) -> dict[str, Any]:
    """`{topic: [entry, …]}` with the partition as index, or `{topic: {partition: entry}}` where that is shorter.

    An entry is the epoch, or `[epoch, position - after]` where the two differ.
    """
    topics: dict[str, dict[int, Any]] = {}
    for partition, (position, after, epoch) in sorted(marks.items()):
        topics.setdefault(partition.topic, {})[partition.partition] = (
            epoch if after == position else [epoch, position - after]
        )
    return {topic: by_number(entries) for topic, entries in topics.items()}


def unpack_marks(packed: Mapping[str, Any], position: Positions) -> dict[TopicPartition, Mark]:
    """The inverse of `pack_marks`."""
    marks: dict[TopicPartition, Mark] = {}
    for topic, entries in packed.items():
        listed = enumerate(entries) if isinstance(entries, list) else ((int(n), e) for n, e in entries.items())
        for number, entry in listed:
            partition = TopicPartition(topic, number)
            if entry is None or partition not in position:
                continue
            epoch, behind = entry if isinstance(entry, list) else (entry, 0)
            marks[partition] = Mark(position[partition], position[partition] - behind, epoch)
    return marks
