"""Splits of a batch: its offset ranges, cut into equal parts, one for each core."""

from __future__ import annotations

import math
from collections.abc import Collection

from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    PartitionRange,
    Ranges,
    TopicPartition,
)

LEAST = 10_000
"""Least number of records in a split: its start costs about as much as landing them."""


def split_ranges(
    ranges: Ranges, cores: int, done: Collection[TopicPartition] = (), *, least: int = LEAST
) -> list[list[PartitionRange]]:
    """Cut ranges into splits, one for each task; their number does not depend on the number of partitions.

    Args:
        cores: Number of concurrent tasks.
        done: Partitions that need not be read.
        least: See `LEAST`.

    Returns:
        Splits, in the order of topics, partitions and offsets; every offset of the ranges once.
    """
    wanted = sorted((where, each) for where, each in ranges.items() if each.end > each.start and where not in done)
    total = sum(each.end - each.start for _, each in wanted)
    if not total:
        return []
    count = max(1, min(cores, total // least))
    size = math.ceil(total / count)
    splits: list[list[PartitionRange]] = [[]]
    room = size
    for where, (start, end) in wanted:
        while start < end:
            if not room:
                splits.append([])
                room = size
            until = min(end, start + room)
            splits[-1].append(PartitionRange(where, OffsetRange(start, until)))
            room -= until - start
            start = until
    return splits
