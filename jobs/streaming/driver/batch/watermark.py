"""Watermark of a stream: before which event time no record is awaited any more. Pure decisions.

The watermark is the least, over the partitions that are not idle, of the greatest event time that was read of each,
less the grace. It never moves back. A partition holds it up until its first event, and from then on until it is idle:
read to the end of its log, and without an event for `idle_after`, by the driver's clock. Once all are, a record that
still comes happened no earlier than now less the grace, if records come within the grace at all: so the watermark moves
on to the time through which the stream is complete, less the grace.
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
"""Clocks of producers may be so much ahead, however short the grace is."""


def known_times(newest: Stamp | None, event_time: EventTime) -> EventTimes:
    """What the newest stamp says of the event times of this column; nothing of another one."""
    known = newest.event_time if newest else None
    return known if known and known.column == event_time.column else EventTimes(event_time.column)


def believed_until(event_time: EventTime, now_ms: int) -> int:
    """A later event time than this is not believed, or one broken clock would move the watermark for good.

    Less the grace it is no later than now, and so is the watermark.
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
    """The event times behind a batch, or behind a look at the logs while nothing comes.

    Args:
        before: Those that the newest stamp knows.
        read: The greatest event time that the batch has read of each partition of which it has read any.
        end: The next offsets after it, of every partition.
        logs: The ends of the logs.
        through_ms: Every record that had come by then is in the tables; milliseconds since 1970.
        batch: What else the batch held.
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
    """By which bounds the records were judged that the coordinator is past, and that are read for another target.

    Where no stamp tells, the newest bound counts: by an earlier one letters of late records would be lost.

    Args:
        newest: The coordinator's newest stamp.
        stamps: Those of its batches that are still kept, newest first.
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
