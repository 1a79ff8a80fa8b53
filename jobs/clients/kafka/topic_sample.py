"""Sample of a topic: some of its newest or oldest records, from all its partitions."""

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
    """Record of a sample; the value of a tombstone is null."""

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
    """Return the offsets to read for a sample: about equally many of each partition, as far as it has them.

    Args:
        earliest: First offset of each partition.
        latest: End of each partition.
        records: Limit of records.
        end: End of the log to read from.
    """
    left, ranges = records, {}
    kept = {partition: latest[partition] - first for partition, first in earliest.items()}
    # The shortest partition first, so that longer ones make up for it.
    for number, (partition, count) in enumerate(sorted(kept.items(), key=lambda each: (each[1], each[0]))):
        taken = min(count, -(-left // (len(kept) - number)))
        left -= taken
        if taken:
            first = latest[partition] - taken if end == "newest" else earliest[partition]
            ranges[partition] = OffsetRange(first, first + taken)
    return dict(sorted(ranges.items()))


def find_sample(settings: KafkaSettings, topic: str, records: int, end: Literal["newest", "oldest"]) -> Ranges:
    """Return the offsets of a sample of a topic.

    Raises:
        FrazilError: The topic does not exist, or Kafka does not answer.
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
    """Yield the records of a sample, in parts; a compacted topic has fewer records than offsets.

    Raises:
        KafkaUnavailableError: No answer came within the request time-out.
    """
    with TopicReader(settings, "frazil-sample") as reader:
        for partition, range_ in ranges.items():
            for messages in reader.read(partition, range_):
                yield [_record(partition, each) for each in messages]


def _record(partition: TopicPartition, message: Message) -> SampleRecord:
    headers = tuple((name, as_bytes(value)) for name, value in message.headers() or ())
    return SampleRecord(partition, message.offset() or 0, as_bytes(message.value()), as_bytes(message.key()), headers)
