"""Log state: the topics of a stream in Kafka, their ids, and whether they still are the topics that were read."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from jobs.base.errors import FrazilError
from jobs.tables.commit.stamp.errors import OffsetsLostError, TopicRecreatedError
from jobs.tables.commit.stamp.offsets import (
    Gap,
    OffsetRange,
    Positions,
    TopicPartition,
    describe_ranges,
)

NOWHERE: Positions = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class LogState:
    """The subscribed topics in Kafka's present state.

    Attributes:
        topics: Kafka's id of each topic that exists and is subscribed.
        earliest: First offset that is still kept, per partition.
        latest: End of the log, per partition; with read_committed, the end of decided transactions.
        watermarks: End of all records, those of open transactions included.
        leader_epochs: Epoch of each partition's leader, if the brokers report it.
        seen_ms: Time just before the ends were queried, milliseconds since 1970.
    """

    topics: dict[str, str]
    earliest: Positions
    latest: Positions
    watermarks: Positions = field(default_factory=dict)
    leader_epochs: Positions = field(default_factory=dict)
    seen_ms: int | None = None

    def undecided(self) -> dict[TopicPartition, int]:
        """Offsets of open transactions behind the end, for partitions with any."""
        return undecided(self.latest, self.watermarks)


def of_topics(log: LogState, topics: Container[str]) -> LogState:
    """The same state, restricted to some topics."""

    def kept(positions: Positions) -> dict[TopicPartition, int]:
        return {p: at for p, at in positions.items() if p.topic in topics}

    ids = {topic: each for topic, each in log.topics.items() if topic in topics}
    ends = kept(log.latest), kept(log.watermarks), kept(log.leader_epochs)
    return LogState(ids, kept(log.earliest), *ends, log.seen_ms)


def undecided(latest: Positions, watermarks: Positions) -> dict[TopicPartition, int]:
    """Offsets between the end of decided transactions and the end of all records, for partitions with any."""
    return {p: high - latest[p] for p, high in watermarks.items() if high > latest[p]}


def check_identity(stream: str, before: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise if a topic was recreated under the same name."""
    for topic, identity in before.items():
        if another_topic(identity, now.get(topic)):
            raise TopicRecreatedError(
                f"stream {stream}: topic {topic} was deleted and created again (id {identity} became {now[topic]}); "
                "its offsets start again, so the stream's position is invalid for it.",
                fix=f"`frazil accept {stream} --recreated-topic {topic}` to read the new topic from its beginning",
            )


def refuse_unidentifiable(stream: str, log: LogState, before: Container[str]) -> None:
    """Raise for topics whose recreation nobody could detect: without an id and without leader epochs.

    Args:
        before: Topics that the stream has read already, under the same limits.
    """
    told = {partition.topic for partition in log.leader_epochs}
    found = [topic for topic in without_id(log.topics) if topic not in before and topic not in told]
    if found:
        raise FrazilError(
            f"stream {stream}: the brokers give topic {', '.join(found)} no id, and its partitions no leader epochs: "
            "if it is deleted and created again, or its log is cut, records are skipped unnoticed.",
            fix="read it from brokers that speak the protocol of Kafka 2.1 at least, 2.8 for ids",
        )


def check_continuity(stream: str, position: Positions, departures: Positions) -> None:
    """Raise if a log no longer holds what was read of it, however far it has grown since."""
    if not departures:
        return
    topic = min(departures).topic
    read = {p: OffsetRange(min(at, position[p]), position[p]) for p, at in departures.items() if p.topic == topic}
    raise TopicRecreatedError(
        f"stream {stream}: the log of topic {topic} was cut: {describe_ranges(read)} were read, and are missing or "
        "other records now (a broker lost its disk, or an incomplete replica became the leader).",
        fix=f"`frazil accept {stream} --recreated-topic {topic}` to read the log's present records there; landed rows "
        "stay",
    )


def check_offsets(stream: str, known: Positions, log: LogState) -> None:
    """Raise if a log does not reach from the stream's position on.

    Raises:
        OffsetsLostError: Retention removed records that were not read.
        TopicRecreatedError: A log ends before the stream's position.
    """
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
                f"{log.latest[partition]}, before the stream's position {offset}: its log was cut or recreated.",
                fix=f"`frazil accept {stream} --recreated-topic {partition.topic}` to go on at its end",
            )


# Clients show this if the broker reports no id: 128 bits, all 0.
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"


def has_id(identity: str | None) -> bool:
    """Whether this is an id that Kafka gave a topic."""
    return bool(identity) and identity != NO_ID


def another_topic(before: str | None, now: str | None) -> bool:
    """Whether two ids prove that a topic was recreated; an unknown id proves nothing."""
    return has_id(before) and has_id(now) and before != now


def without_id(topics: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the topics without an id."""
    return tuple(sorted(topic for topic, identity in topics.items() if not has_id(identity)))
