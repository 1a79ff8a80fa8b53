"""Ranges of an audit: batches' ranges, grouped where they overlap, for one target and for all, and in windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

import numpy as np

from jobs.config.values.targets import TargetSpec
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts

MAX_RANGES = 1000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BatchRange:
    """A range that one batch read.

    Attributes:
        rows: Rows that it put into the table; None if unknown.
        counts: Records that it read; `tombstones`, `filtered` and, for the sink, `dead` made no row.
        stamped: Whether its stamp was seen; if not, it is unknown how often each of its offsets was read.
        at: Commit time.
    """

    range: OffsetRange
    rows: int | None
    counts: Counts
    sequence: int
    snapshot_id: int
    stamped: bool = True
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class RangeGroup:
    """Ranges of one partition that overlap each other and no other: the smallest comparable unit.

    Most groups have one range. If an operator had a range read again, its group has two or more.
    """

    partition: TopicPartition
    range: OffsetRange
    batches: tuple[BatchRange, ...]

    @property
    def rows(self) -> int | None:
        """Rows that the table must have for the range; None if unknown."""
        total = 0
        for batch in self.batches:
            if batch.rows is None:
                return None
            total += batch.rows
        return total

    @property
    def counts(self) -> Counts:
        """Sums over the batches."""
        return sum((batch.counts for batch in self.batches), Counts())

    @property
    def newest(self) -> int:
        """Sequence number of the newest batch."""
        return max(batch.sequence for batch in self.batches)


@dataclass(frozen=True, slots=True)
class ComparedRange:
    """Range groups of the stream's targets that overlap each other and no other, compared together."""

    partition: TopicPartition
    range: OffsetRange
    groups: Mapping[TargetSpec, Sequence[RangeGroup]]

    def batches(self, target: TargetSpec) -> list[BatchRange]:
        """Batches of one target that read it."""
        return [batch for group in self.groups.get(target, ()) for batch in group.batches]


@dataclass(frozen=True, slots=True)
class WindowPart:
    """A compared range, or a window's part of a larger one."""

    whole: ComparedRange
    range: OffsetRange

    @property
    def last(self) -> bool:
        """Whether it is the last part of the compared range."""
        return self.range.end == self.whole.range.end


@dataclass(slots=True)
class OffsetRanges:
    """Offsets as a limited number of ranges; further ones are only counted."""

    kept: list[OffsetRange] = field(default_factory=list)
    more: int = 0
    limit: int = MAX_RANGES

    def add(self, offsets: np.ndarray, base: int) -> None:
        """Add ascending offsets, each given as its distance from `base`."""
        if not len(offsets):
            return
        breaks = np.flatnonzero(np.diff(offsets) > 1)
        starts = offsets[np.concatenate(([0], breaks + 1))] + base
        ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + base + 1
        room = self.limit - len(self.kept)
        for start, end in zip(starts[:room].tolist(), ends[:room].tolist(), strict=True):
            if self.kept and self.kept[-1].end == start:
                self.kept[-1] = OffsetRange(self.kept[-1].start, end)
            else:
                self.kept.append(OffsetRange(start, end))
        self.more += max(0, len(starts) - max(0, room))


def ranges_overlap(one: OffsetRange, other: OffsetRange) -> bool:
    """Whether two ranges have an offset in common."""
    return one.start < other.end and other.start < one.end


def slice_of_range(range_: OffsetRange, start: int) -> slice:
    """Slice of the range in an array whose first element is the offset `start`."""
    return slice(max(0, range_.start - start), max(0, range_.end - start))


def group_ranges(partition: TopicPartition, batches: Iterable[BatchRange]) -> list[RangeGroup]:
    """Ranges of one partition, in groups of overlapping ones, in order."""
    overlapping = _overlapping((batch.range, batch) for batch in batches)
    return [RangeGroup(partition, range_, tuple(together)) for range_, together in overlapping]


def compared_ranges(
    targets: Mapping[TargetSpec, Mapping[TopicPartition, Sequence[RangeGroup]]], after: Mapping[TargetSpec, int]
) -> Iterator[ComparedRange]:
    """Overlapping range groups of all targets, if one of them is newer than its last audit.

    Args:
        targets: Expected rows of the targets.
        after: Sequence number through which each was audited before.
    """
    for partition in sorted({partition for groups in targets.values() for partition in groups}):
        every = [(target, group) for target, each in targets.items() for group in each.get(partition, ())]
        for range_, together in _overlapping((each[1].range, each) for each in every):
            if any(group.newest > after[target] for target, group in together):
                groups: dict[TargetSpec, list[RangeGroup]] = {}
                for target, group in together:
                    groups.setdefault(target, []).append(group)
                yield ComparedRange(partition, range_, groups)


def _overlapping(items: Iterable[tuple[OffsetRange, T]]) -> Iterator[tuple[OffsetRange, list[T]]]:
    """Groups of overlapping items, each with the range of all of them."""
    start = end = 0
    together: list[T] = []
    for range_, item in sorted(items, key=lambda pair: pair[0]):
        if together and range_.start >= end:
            yield OffsetRange(start, end), together
            together = []
        start, end = (start, max(end, range_.end)) if together else range_
        together.append(item)
    if together:
        yield OffsetRange(start, end), together


def range_windows(every: Iterable[ComparedRange], size: int) -> Iterator[list[WindowPart]]:
    """Compared ranges in windows of at most `size` offsets; a larger range fills several windows alone."""
    window: list[WindowPart] = []
    used = 0
    for each in every:
        at, end = each.range
        if window and used + end - at > size:
            yield window
            window, used = [], 0
        while end - at > size:
            yield [WindowPart(each, OffsetRange(at, at + size))]
            at += size
        window.append(WindowPart(each, OffsetRange(at, end)))
        used += end - at
    if window:
        yield window
