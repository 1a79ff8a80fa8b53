"""Sets of offsets of a partition as ascending, disjoint ranges, and the passes and batches that land them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

OffsetSet: TypeAlias = tuple[OffsetRange, ...]
"""Ranges of one partition, ascending; no two of them touch."""


def offset_set(ranges: Iterable[OffsetRange]) -> OffsetSet:
    """The offsets that any of some ranges has."""
    found: list[OffsetRange] = []
    for start, end in sorted(ranges):
        if end <= start:
            continue
        if found and start <= found[-1].end:
            found[-1] = OffsetRange(found[-1].start, max(end, found[-1].end))
        else:
            found.append(OffsetRange(start, end))
    return tuple(found)


def without(offsets: OffsetSet, taken: OffsetSet) -> OffsetSet:
    """The offsets of one set that another one lacks."""
    found: list[OffsetRange] = []
    for start, end in offsets:
        at = start
        for other in taken:
            if other.end <= at or other.start >= end:
                continue
            if other.start > at:
                found.append(OffsetRange(at, other.start))
            at = max(at, other.end)
        if at < end:
            found.append(OffsetRange(at, end))
    return tuple(found)


def within(offsets: OffsetSet, others: OffsetSet) -> OffsetSet:
    """The offsets that both sets have."""
    return without(offsets, without(offsets, others))


def count(offsets: OffsetSet) -> int:
    """How many offsets a set has."""
    return sum(end - start for start, end in offsets)


def passes(ranges: Mapping[TopicPartition, OffsetSet]) -> Iterator[dict[TopicPartition, OffsetRange]]:
    """Ranges in the order in which they are landed: in each pass at most one of a partition."""
    for number in range(max(map(len, ranges.values()), default=0)):
        yield {partition: each[number] for partition, each in sorted(ranges.items()) if number < len(each)}


def batches(
    pass_: Mapping[TopicPartition, OffsetRange], most: int, positions: Mapping[TopicPartition, int]
) -> Iterator[dict[TopicPartition, int]]:
    """Ends of the batches of a pass: the next offsets of every partition after each.

    Args:
        most: Offsets of a batch.
        positions: Where every partition of the stream stands; those of the pass at their beginnings.
    """
    at, room = dict(positions), most
    for partition, range_ in sorted(pass_.items()):
        while at[partition] < range_.end:
            taken = min(room, range_.end - at[partition])
            at[partition] += taken
            room -= taken
            if not room:
                yield dict(at)
                room = most
    if room < most:
        yield dict(at)
