"""Starting point of a stream: the offsets at which it begins to read, from its stamps and the state of the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.tables.commit.stamp.errors import TopicLostError
from jobs.tables.commit.stamp.log_state import (
    NOWHERE,
    LogState,
    check_continuity,
    check_identity,
    check_offsets,
)
from jobs.tables.commit.stamp.offsets import (
    OffsetRange,
    Positions,
    TopicPartition,
    describe_ranges,
)
from jobs.tables.commit.stamp.retired_topics import returned_topics
from jobs.tables.commit.stamp.stamps import Stamp


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """First offsets of a stream, and its retired topics.

    Attributes:
        offsets: First offset to read, of every existing partition.
        retired: Topics that were read to their end and no longer exist.
        dropped: Topics that the spec no longer names.
        kept: Positions of the dropped topics. They stay in the stamps, so that a topic that returns is not landed
            again.
    """

    offsets: dict[TopicPartition, int]
    retired: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    kept: dict[TopicPartition, int] = field(default_factory=dict)


def starting_point(
    stream: str,
    known: Positions,
    anchor: Stamp | None,
    log: LogState,
    first_start: Positions,
    subscribed: Callable[[str], bool],
    reached: Positions = NOWHERE,
    departures: Positions = NOWHERE,
) -> StartingPoint:
    """Decide where to begin.

    Args:
        anchor: The coordinator's newest stamp, with Kafka's topic ids and the known ends of the logs.
        first_start: Offsets of the spec's `start`; used if there is no stamp at all.
        subscribed: Whether the spec names a topic.
        reached: Position of the furthest target; beyond `known` while a batch is half committed.
        departures: Offsets at which the log departs from what was read, of partitions where that is known.

    Raises:
        TopicRecreatedError: A topic has another id than when it was read, or its log was cut before the stream's
            position.
        TopicLostError: A topic was dropped and not read to its known end, or not landed on every target.
        OffsetsLostError: Retention removed records that were not read.
    """
    if anchor is None:
        return StartingPoint(dict(first_start))
    known = {**returned_topics(anchor.retired, log.topics), **known}
    topics = dict.fromkeys(partition.topic for partition in sorted(known))
    dropped = tuple(topic for topic in topics if not subscribed(topic))
    gone = [topic for topic in topics if topic not in log.topics and topic not in dropped]
    retired = tuple(topic for topic in gone if not unread(topic, known, anchor, reached))
    for topic in gone:
        if topic not in retired:
            half = any(reached.get(partition, at) > at for partition, at in known.items() if partition.topic == topic)
            raise TopicLostError(
                f"stream {stream}: topic {topic} was deleted, and the records "
                f"{describe_ranges(unread(topic, known, anchor, reached))} were not "
                + ("landed in every table." if half else "read."),
                fix=f"`frazil accept {stream} --lost-topic {topic}` to go on without them",
            )
    check_identity(stream, anchor.topics, log.topics)
    check_continuity(stream, anchor.position, departures)
    check_offsets(stream, known, log)
    offsets = {partition: known.get(partition, log.earliest[partition]) for partition in log.earliest}
    kept = {partition: offset for partition, offset in known.items() if partition.topic in dropped}
    return StartingPoint(offsets, retired, dropped, kept)


def unread(
    topic: str, known: Positions, anchor: Stamp, reached: Positions = NOWHERE
) -> dict[TopicPartition, OffsetRange]:
    """Unread records of `topic` at the starting point: up to its known end, or another target's position."""
    ends = {
        partition: max(anchor.ends.get(partition, offset), reached.get(partition, offset))
        for partition, offset in known.items()
        if partition.topic == topic
    }
    return {partition: OffsetRange(known[partition], end) for partition, end in ends.items() if end > known[partition]}
