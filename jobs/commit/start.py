"""Where a stream begins to read, and why it may not: pure decisions on stamps and the state of the log."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from jobs.commit.errors import OffsetsLostError, TopicLostError, TopicRecreatedError
from jobs.commit.offsets import Gap, OffsetRange, Positions, TopicPartition, describe
from jobs.commit.retired import returned
from jobs.commit.stamps import Stamp
from jobs.commit.topic_ids import another_topic, without_id
from jobs.errors import FrazilError

NOWHERE: Positions = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LogState:
    """The subscribed topics as Kafka has them now.

    Attributes:
        topics: Kafka's id of each topic that exists and is subscribed.
        earliest: The first offset still kept, per partition.
        latest: The end of the log, per partition; with read_committed the end of what is decided.
        watermarks: The end of all that is there, records of open transactions included.
        leader_epochs: The epoch of each partition's leader, where the brokers say it.
        seen_ms: When the ends were not yet asked for, milliseconds since 1970.
    """

    topics: dict[str, str]
    earliest: Positions
    latest: Positions
    watermarks: Positions = field(default_factory=dict)
    leader_epochs: Positions = field(default_factory=dict)
    seen_ms: int | None = None

    def undecided(self) -> dict[TopicPartition, int]:
        """Offsets behind the end of what is decided, of partitions that have any."""
        return undecided(self.latest, self.watermarks)


def undecided(latest: Positions, watermarks: Positions) -> dict[TopicPartition, int]:
    """Offsets between the end of what is decided and the end of all, of partitions that have any."""
    return {p: high - latest[p] for p, high in watermarks.items() if high > latest[p]}


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Where each partition begins.

    Attributes:
        offsets: The first offset to read, of every partition there is.
        retired: Topics that were read to their end and are gone.
        dropped: Topics that the spec no longer names.
        kept: Where the dropped ones stand; stamped on, so that a topic that is named again is not landed again.
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
        stream: The stream's id, for messages.
        known: The stream's positions by its stamps.
        anchor: The anchor's newest stamp: Kafka's topic ids and the log's known ends then.
        log: The subscribed topics now.
        first_start: Where the spec's `start` points to; used when there is no stamp at all.
        subscribed: Whether the spec names a topic.
        reached: Where the target that is furthest stands; beyond `known` while a batch is half committed.
        departures: Where the log is no longer the one that was read, of partitions of which that is known.

    Raises:
        TopicRecreatedError: A topic has another id than when it was read, or its log was cut before the stream's
            position.
        TopicLostError: A topic is gone and was not read to its known end, or not landed on every target.
        OffsetsLostError: Retention removed records that were not read.
    """
    if anchor is None:
        return StartingPoint(dict(first_start))
    known = {**returned(anchor.retired, log.topics), **known}
    topics = dict.fromkeys(partition.topic for partition in sorted(known))
    dropped = tuple(topic for topic in topics if not subscribed(topic))
    gone = [topic for topic in topics if topic not in log.topics and topic not in dropped]
    retired = tuple(topic for topic in gone if not unread(topic, known, anchor, reached))
    for topic in gone:
        if topic not in retired:
            half = any(reached.get(partition, at) > at for partition, at in known.items() if partition.topic == topic)
            raise TopicLostError(
                f"stream {stream}: topic {topic} is gone, and the records "
                f"{describe(unread(topic, known, anchor, reached))} were not "
                + ("landed in every table." if half else "read."),
                fix=f"`frazil accept {stream} --lost-topic {topic}` to go on without them",
            )
    check_identity(stream, anchor.topics, log.topics)
    check_continuity(stream, anchor.position, departures)
    _check_offsets(stream, known, log)
    offsets = {partition: known.get(partition, log.earliest[partition]) for partition in log.earliest}
    kept = {partition: offset for partition, offset in known.items() if partition.topic in dropped}
    return StartingPoint(offsets, retired, dropped, kept)


def unread(
    topic: str, known: Positions, anchor: Stamp, reached: Positions = NOWHERE
) -> dict[TopicPartition, OffsetRange]:
    """The records of `topic` that some target lacks: up to the log's last known end, or to where another one stands."""
    ends = {
        partition: max(anchor.ends.get(partition, offset), reached.get(partition, offset))
        for partition, offset in known.items()
        if partition.topic == topic
    }
    return {partition: OffsetRange(known[partition], end) for partition, end in ends.items() if end > known[partition]}


def check_identity(stream: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Refuse to go on when a topic of the same name is another topic.

    Raises:
        TopicRecreatedError: Naming the first such topic.
    """
    for topic, identity in before.items():
        if another_topic(identity, now.get(topic)):
            raise TopicRecreatedError(
                f"stream {stream}: topic {topic} was deleted and created again (id {identity} became {now[topic]}); "
                "its offsets begin anew, so the stream's position means nothing for it.",
                fix=f"`frazil accept {stream} --recreated-topic {topic}` to read the new topic from its beginning",
            )


def refuse_untellable(stream: str, log: LogState, before: Container[str]) -> None:
    """Refuse topics of which nobody could tell that they were deleted and created again: no id, no leader epochs.

    Args:
        stream: The stream's id.
        log: The subscribed topics now.
        before: Topics that the stream has read already, with what it could know of them.

    Raises:
        FrazilError: Naming them.
    """
    told = {partition.topic for partition in log.leader_epochs}
    found = [topic for topic in without_id(log.topics) if topic not in before and topic not in told]
    if found:
        raise FrazilError(
            f"stream {stream}: the brokers give topic {', '.join(found)} no id, and its partitions no leader epochs: "
            "if it is deleted and created again, or its log cut, records are passed over and nobody can tell.",
            fix="read it from brokers that speak the protocol of Kafka 2.1 at least, 2.8 for ids",
        )


def check_continuity(stream: str, position: Positions, departures: Positions) -> None:
    """Refuse to go on when a log no longer holds what was read of it, though it may have grown past the position since.

    Args:
        position: Up to where it was read.
        departures: Where a log is no longer the one that was read.

    Raises:
        TopicRecreatedError: Naming the first such topic, and all of its partitions.
    """
    if not departures:
        return
    topic = min(departures).topic
    read = {p: OffsetRange(min(at, position[p]), position[p]) for p, at in departures.items() if p.topic == topic}
    raise TopicRecreatedError(
        f"stream {stream}: the log of topic {topic} was cut: {describe(read)} were read, and are gone from it or hold "
        "other records now (a broker lost its disk, or one that had not copied all became the leader).",
        fix=f"`frazil accept {stream} --recreated-topic {topic}` to read what the log holds there now; "
        "what was landed stays",
    )


def _check_offsets(stream: str, known: Positions, log: LogState) -> None:
    lost = [
        Gap(partition, OffsetRange(offset, log.earliest[partition]))
        for partition, offset in sorted(known.items())
        if partition in log.earliest and log.earliest[partition] > offset
    ]
    if lost:
        raise OffsetsLostError(
            f"stream {stream}: Kafka no longer keeps records that were not read: {'; '.join(map(str, lost))}.",
            fix=f"`frazil accept {stream} --lost-offsets` to go on behind them",
        )
    for partition, offset in sorted(known.items()):
        if partition in log.latest and log.latest[partition] < offset:
            raise TopicRecreatedError(
                f"stream {stream}: topic {partition.topic}, partition {partition.partition} ends at "
                f"{log.latest[partition]}, before the stream's position {offset}: its log was cut or begun anew.",
                fix=f"`frazil accept {stream} --recreated-topic {partition.topic}` to go on at its end",
            )
