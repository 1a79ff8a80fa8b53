"""Offsets, positions and ranges per (topic, partition): the arithmetic everything exact rests on.

Every offset here is a *next* offset (last read + 1), as in Kafka's own committed offsets. A range is half open:
`[start, end)`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one Kafka topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Positions = Mapping[TopicPartition, int]


class OffsetRange(NamedTuple):
    """The records of one partition with `start <= offset < end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


Ranges = Mapping[TopicPartition, OffsetRange]


class PartitionRange(NamedTuple):
    """An offset range of one partition."""

    partition: TopicPartition
    range: OffsetRange


@dataclass(frozen=True, slots=True)
class Gap:
    """Records of one partition that were never read, and would be passed over."""

    partition: TopicPartition
    missing: OffsetRange

    def __str__(self) -> str:
        return f"topic {self.partition.topic}, partition {self.partition.partition}, offsets {self.missing}"


def pointwise_max(positions: Iterable[Positions]) -> dict[TopicPartition, int]:
    """The greatest offset that any of `positions` names, per partition."""
    greatest: dict[TopicPartition, int] = {}
    for each in positions:
        for partition, offset in each.items():
            greatest[partition] = max(offset, greatest.get(partition, offset))
    return greatest


def by_topic(positions: Positions) -> dict[str, dict[str, int]]:
    """Positions as JSON has them: by topic, and by the partition's number."""
    topics: dict[str, dict[str, int]] = {}
    for partition, offset in sorted(positions.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = offset
    return topics


def from_topics(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of `by_topic`."""
    return {TopicPartition(topic, int(n)): at for topic, entries in topics.items() for n, at in entries.items()}


def spark_offsets(positions: Positions) -> str:
    """Positions in the JSON that Spark's `startingOffsets` takes and its offset log holds."""
    return json.dumps(by_topic(positions))


def from_spark_offsets(text: str) -> dict[TopicPartition, int]:
    """The inverse of `spark_offsets`."""
    return from_topics(json.loads(text))


def describe_ranges(ranges: Mapping[TopicPartition, OffsetRange], limit: int = 5) -> str:
    """Offset ranges as words for a message: `payments-0 [17, 40), payments-1 [3, 9)`, cut after `limit`."""
    named = [f"{partition} {range_}" for partition, range_ in sorted(ranges.items())]
    more = f" and {len(named) - limit} more" if len(named) > limit else ""
    return ", ".join(named[:limit]) + more
