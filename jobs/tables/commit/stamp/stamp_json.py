"""Compact JSON of a stamp's parts: positions, counts, decisions, the last records read, retired topics.

Values per partition are `{topic: [entry, …]}`, with the partition as index and null for a partition without one; or
`{topic: {partition: entry}}` if that is shorter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    Ranges,
    TopicPartition,
)
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import (
    Counts,
    Decision,
    LastRead,
    LastReads,
    PartitionCounts,
)


def pack_counts(counts: Counts) -> list[int]:
    """The numbers in the order of the fields; empty if all are 0."""
    values = [counts.read, counts.landed, counts.dead, counts.tombstones, counts.filtered]
    return values if any(values) else []


def pack_positions(start: Positions, position: Positions) -> dict[str, list[list[int] | None]]:
    """`{topic: [[start, position], …]}` with the partition as index, -1 for an unknown offset."""
    packed: dict[str, list[list[int] | None]] = {}
    for partition in sorted(set(start) | set(position)):
        entries = packed.setdefault(partition.topic, [])
        entries.extend([None] * (partition.partition - len(entries)))
        entries.append([start.get(partition, -1), position.get(partition, -1)])
    return packed


def unpack_positions(
    packed: Mapping[str, list[list[int] | None]],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The inverse of `pack_positions`."""
    start: dict[TopicPartition, int] = {}
    position: dict[TopicPartition, int] = {}
    for partition, (first, at) in by_partition(packed):
        if first >= 0:
            start[partition] = first
        if at >= 0:
            position[partition] = at
    return start, position


def pack_parts(parts: Mapping[TopicPartition, PartitionCounts], start: Positions) -> dict[str, Any]:
    """Counts by partition: `[landed, dead, tombstones, filtered, stood - start, read beyond their sum, elsewhere]`.

    Trailing zeros are dropped, a list of one number is the number, and null is a partition without records.
    """
    topics: dict[str, dict[int, Any]] = {}
    for partition, part in sorted(parts.items()):
        counts = part.counts
        beyond = counts.read - counts.landed - counts.dead - counts.tombstones - counts.filtered
        stood = part.stood - start.get(partition, 0)
        entry = [counts.landed, counts.dead, counts.tombstones, counts.filtered, stood, beyond, part.elsewhere]
        while len(entry) > 1 and not entry[-1]:
            entry.pop()
        topics.setdefault(partition.topic, {})[partition.partition] = entry if len(entry) > 1 else entry[0]
    return {topic: shortest(entries) for topic, entries in topics.items()}


def unpack_parts(packed: Mapping[str, Any], start: Positions) -> dict[TopicPartition, PartitionCounts]:
    """The inverse of `pack_parts`."""
    parts: dict[TopicPartition, PartitionCounts] = {}
    for partition, entry in by_partition(packed):
        values = [*entry] if isinstance(entry, list) else [entry]
        landed, dead, tombstones, filtered, stood, beyond, elsewhere = values + [0] * (7 - len(values))
        read = landed + dead + tombstones + filtered + beyond
        parts[partition] = PartitionCounts(
            start.get(partition, 0) + stood, Counts(read, landed, dead, tombstones, filtered), elsewhere
        )
    return parts


def pack_decision(decision: Decision) -> dict[str, Any]:
    """The decision without its empty fields."""
    packed: dict[str, Any] = {
        "answer": decision.answer,
        "passed": _pack_ranges(decision.passed),
        "again": _pack_ranges(decision.again),
        "removed": _pack_ranges(decision.removed),
    }
    packed = {key: value for key, value in packed.items() if value}
    return packed if decision.since is None else packed | {"since": decision.since}


def unpack_decision(packed: Mapping[str, Any]) -> Decision:
    """The inverse of `pack_decision`."""
    return Decision(
        packed["answer"],
        _unpack_ranges(packed.get("passed", {})),
        _unpack_ranges(packed.get("again", {})),
        _unpack_ranges(packed.get("removed", {})),
        packed.get("since"),
    )


def _pack_ranges(ranges: Ranges) -> dict[str, list[list[int]]]:
    packed: dict[str, list[list[int]]] = {}
    for partition, (start, end) in sorted(ranges.items()):
        packed.setdefault(partition.topic, []).append([partition.partition, start, end])
    return packed


def _unpack_ranges(packed: Mapping[str, Any]) -> dict[TopicPartition, OffsetRange]:
    return {
        TopicPartition(topic, number): OffsetRange(start, end)
        for topic, entries in packed.items()
        for number, start, end in entries
    }


def pack_last_reads(reads: LastReads) -> dict[str, Any]:
    """Last reads by partition: the epoch, or `[epoch, position - after]` if the two differ."""
    topics: dict[str, dict[int, Any]] = {}
    for partition, (position, after, epoch) in sorted(reads.items()):
        entry = epoch if after == position else [epoch, position - after]
        topics.setdefault(partition.topic, {})[partition.partition] = entry
    return {topic: shortest(entries) for topic, entries in topics.items()}


def unpack_last_reads(packed: Mapping[str, Any], position: Positions) -> dict[TopicPartition, LastRead]:
    """The inverse of `pack_last_reads`."""
    reads: dict[TopicPartition, LastRead] = {}
    for partition, entry in by_partition(packed):
        if partition in position:
            epoch, behind = entry if isinstance(entry, list) else (entry, 0)
            reads[partition] = LastRead(position[partition], position[partition] - behind, epoch)
    return reads


def pack_retired(retired: Mapping[str, Retired]) -> dict[str, Any]:
    """`{topic: [id, time, positions]}`, the positions in the order of the partitions, or by partition."""
    return {
        topic: [each.identity, each.at_ms, shortest(dict(each.positions))]
        for topic, each in retired.items()
        if each.positions
    }


def unpack_retired(packed: Mapping[str, Any]) -> dict[str, Retired]:
    """The inverse of `pack_retired`."""
    return {
        topic: Retired(identity, at_ms, dict(_by_number(positions)))
        for topic, (identity, at_ms, positions) in packed.items()
    }


def shortest(entries: dict[int, Any]) -> Any:
    """Entries by partition as a list with the partition as index, or as a map if that is shorter."""
    last = max(entries)
    if len(entries) * 2 > last:
        return [entries.get(number) for number in range(last + 1)]
    return {str(number): entry for number, entry in entries.items()}


def _by_number(entries: Any) -> Iterator[tuple[int, Any]]:
    """The inverse of `shortest`."""
    listed = enumerate(entries) if isinstance(entries, list) else ((int(n), entry) for n, entry in entries.items())
    return ((number, entry) for number, entry in listed if entry is not None)


def by_partition(packed: Mapping[str, Any]) -> Iterator[tuple[TopicPartition, Any]]:
    """Entries of a map by topic whose values `shortest` made."""
    for topic, entries in packed.items():
        for number, entry in _by_number(entries):
            yield TopicPartition(topic, number), entry
