"""Sample of a topic: some of its newest, or oldest, records, taken from all its partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from confluent_kafka import Message

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.kafka.records import as_bytes
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.source import Source
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition


class SampleRecord(NamedTuple):
    """A record of a sample; its value is null of a tombstone."""

    partition: TopicPartition
    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def sample_ranges(
    earliest: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    records: int,
    end: Literal["newest", "oldest"],
) -> Ranges:
    """Offsets to read for so many records: as many of each partition as of another, as far as it has them.

    Args:
        earliest: The first offset of each partition.
        latest: The end of each.
        records: How many at most.
        end: Of which end of the log.
    """
    left, ranges = records, {}
    kept = {partition: latest[partition] - first for partition, first in earliest.items()}
    # The shortest first, so that what it lacks is taken from the others.
    for number, (partition, count) in enumerate(sorted(kept.items(), key=lambda each: (each[1], each[0]))):
        taken = min(count, -(-left // (len(kept) - number)))
        left -= taken
        if taken:
            first = latest[partition] - taken if end == "newest" else earliest[partition]
            ranges[partition] = OffsetRange(first, first + taken)
    return dict(sorted(ranges.items()))


def find_sample(settings: KafkaSettings, topic: str, records: int, end: Literal["newest", "oldest"]) -> Ranges:
    """The offsets of a sample of a topic.

    Raises:
        FrazilError: There is no such topic, or Kafka does not answer.
    """
    kafka = KafkaLog(settings)
    topics = kafka.topics(Source(topics=(topic,)))
    if topic not in topics:
        raise FrazilError(
            f"topic {topic} does not exist at {settings.require_bootstrap()}", fix="name one that does, or create it"
        )
    partitions = [TopicPartition(topic, number) for number in topics[topic]]
    return sample_ranges(kafka.earliest(partitions), kafka.latest(partitions), records, end)


def read_sample(settings: KafkaSettings, ranges: Ranges) -> Iterator[list[SampleRecord]]:
    """The records of a sample, in parts; of a compacted topic fewer than the offsets say.

    Raises:
        KafkaUnavailableError: Nothing came within the time-out for requests.
    """
    with TopicReader(settings, "frazil-sample") as reader:
        for partition, range_ in ranges.items():
            for messages in reader.read(partition, range_):
                yield [_record(partition, each) for each in messages]


def _record(partition: TopicPartition, message: Message) -> SampleRecord:
    headers = tuple((name, as_bytes(value)) for name, value in message.headers() or ())
    return SampleRecord(partition, message.offset() or 0, as_bytes(message.value()), as_bytes(message.key()), headers)
