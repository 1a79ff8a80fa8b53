"""Truncate check: whether changes that happened after a truncate are ordered before it, and would be left out.

A lineage that is known keeps its number until another one is seen after it. Where the former source takes over again,
the first partition that sees it may not have seen the source in between, so nothing in its log says that it came back.
Times do: what the former source had sent before is not later than the truncate, nor than what came behind that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jobs.commit.offsets import TopicPartition
from jobs.mirror.errors import BelowTruncateError
from jobs.mirror.generations import generation_at
from jobs.mirror.log_scan import SLACK_US, LogScan
from jobs.mirror.merge_plan import MirrorState


@dataclass(frozen=True, slots=True)
class _Below:
    """Changes that may be later than a truncate.

    Attributes:
        first: The offset of the first new one.
        exact: Whether that is later itself, and not only one behind it.
        latest: The time of the last change behind the truncate, in µs since 1970.
    """

    first: int
    exact: bool
    latest: int


def refuse_below_truncate(
    stream: str, before: MirrorState, state: MirrorState, scans: Mapping[TopicPartition, LogScan]
) -> None:
    """Refuse new changes that are later than a truncate, and of an earlier generation.

    Args:
        stream: For messages.
        before: What the mirror knew before the increment.
        state: What it knows after it, truncates among it.
        scans: Of the increment.

    Raises:
        BelowTruncateError: There are such changes.
    """
    for topic, floor in sorted(state.floors.items()):
        number = int(floor.token[:4], 16)
        known = before if before.floors.get(topic) == floor else state
        found = dict[TopicPartition, _Below]()
        for partition, scan in sorted(scans.items()):
            if partition.topic == topic and (below := _below(before, known, state, partition, scan, number)):
                found[partition] = below
        if found:
            partition, first = next(iter(found.items()))
            exact = all(each.exact for each in found.values())
            breaks = {each: below.first for each, below in found.items()} if exact else {}
            raise BelowTruncateError(stream, partition, first.first, breaks, first.latest)


def _below(
    before: MirrorState,
    known: MirrorState,
    state: MirrorState,
    partition: TopicPartition,
    scan: LogScan,
    number: int,
) -> _Below | None:
    """The first new change of a partition that may be later than a truncate of that generation."""
    now = state.partitions[partition]
    if scan.first is None or scan.lineage is None or generation_at(now, scan.first) >= number:
        return None
    times = [
        each.at
        for other, each in known.partitions.items()
        if other != partition and other.topic == partition.topic and each.generation >= number and each.at is not None
    ]
    if not times:
        return None
    latest = max(times)
    if scan.first_at is not None and scan.first_at > latest + SLACK_US:
        return _Below(scan.first, True, latest)
    former = before.partitions.get(partition)
    moved = former is None or former.at is None or (now.at or 0) > former.at
    later = now.generation < number and now.at is not None and now.at > latest + SLACK_US
    return _Below(scan.first, False, latest) if moved and later else None
