"""Watermark of a stream: the event time before which no record is expected any more. Pure functions.

The watermark is the least of the partitions' greatest event times, minus the grace; idle partitions do not count. It
never moves back. A partition holds it up until its first event, and then until it is idle: read to the end of its log,
and without an event for `idle_after` by the driver's clock. If all are idle, a record that still comes within the grace
is no older than now minus the grace. So the watermark moves on to the time through which the stream is complete, minus
the grace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jobs.config.stream.event_time import EventTime
from jobs.streaming.driver.context.completeness import ObservedEnds
from jobs.streaming.task.event_time import Steps
from jobs.tables.commit.stamp.event_times import (
    NO_EVENTS,
    EventCounts,
    EventTimes,
    PartitionTime,
    greatest_of,
    least_of,
)
from jobs.tables.commit.stamp.offsets import Positions, Ranges, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp

SHORTEST_AHEAD_MS = 60_000
"""Least time that producers' clocks may be ahead, however short the grace is."""


def known_times(newest: Stamp | None, event_time: EventTime) -> EventTimes:
    """Event times of this column in the newest stamp; empty if it has another column."""
    known = newest.event_time if newest else None
    return known if known and known.column == event_time.column else EventTimes(event_time.column)


def believed_until(event_time: EventTime, now_ms: int) -> int:
    """Latest plausible event time. Without this limit, one broken clock would move the watermark for good.

    Minus the grace, it is no later than now, and so is the watermark.
    """
    return now_ms + max(event_time.grace_ms, SHORTEST_AHEAD_MS)


def advanced(
    before: EventTimes,
    event_time: EventTime,
    read: Mapping[TopicPartition, int],
    end: Positions,
    logs: ObservedEnds,
    through_ms: int | None,
    batch: EventCounts = NO_EVENTS,
) -> EventTimes:
    """Event times after a batch, or after a look at the logs while nothing arrives.

    Args:
        before: Event times in the newest stamp.
        read: Greatest event time that the batch read from each partition with any.
        end: Next offsets after the batch, of every partition.
        logs: Ends of the logs.
        through_ms: Time by which all records that had arrived are in the tables; milliseconds since 1970.
        batch: Further counts of the batch.
    """
    now_ms = logs.at_ms
    partitions: dict[TopicPartition, PartitionTime] = {}
    for partition in end:
        known, new = before.partitions.get(partition), read.get(partition)
        greatest = greatest_of(known.greatest_ms if known else None, new)
        partitions[partition] = PartitionTime(greatest, known.active_ms if known and new is None else now_ms)

    def idle(partition: TopicPartition) -> bool:
        at_end = end[partition] >= logs.watermarks.get(partition, end[partition])
        return at_end and now_ms - partitions[partition].active_ms >= event_time.idle_ms

    holding = [partitions[partition].greatest_ms for partition in end if not idle(partition)]
    reached = min((each for each in holding if each is not None), default=None)
    if None in holding or not end:
        reached = None
    elif not holding:
        reached = through_ms
    if reached is not None:
        reached = min(reached - event_time.grace_ms, now_ms)
    return EventTimes(
        event_time.column,
        greatest_of(before.watermark_ms, reached),
        before.watermark_ms,
        partitions,
        least_of(before.first_ms, batch.least_ms),
        batch.bounded(),
    )


def passed_bounds(
    ranges: Ranges, newest: Stamp, stamps: Iterable[Stamp], event_time: EventTime
) -> dict[TopicPartition, Steps]:
    """Bounds by which records were judged that the coordinator has and another target still needs.

    If no stamp has the bound, the newest one counts. An earlier bound would lose dead letters of late records.

    Args:
        newest: The coordinator's newest stamp.
        stamps: Stamps of its batches that still exist, newest first.
    """
    last = known_times(newest, event_time).bound_ms
    told = [each for each in stamps if each.kind == "batch" and each.event_time]
    found: dict[TopicPartition, Steps] = {}
    for partition, (start, _) in ranges.items():
        reached = newest.position.get(partition, start)
        steps: list[tuple[int, int | None]] = []
        for stamp in [*told, newest]:
            part = stamp.parts.get(partition)
            stood = part.stood if part else stamp.start.get(partition, 0)
            stands = stamp.position.get(partition, 0)
            if reached <= start or stood >= min(reached, stands):
                continue
            if stands < reached:
                steps.append((stands, last))
            steps.append((stood, known_times(stamp, event_time).bound_ms))
            reached = stood
        if reached > start:
            steps.append((start, last))
        if steps:
            found[partition] = tuple(reversed(steps))
    return found
