"""Source record in Kafka: the command that reads it, and whether Kafka still has it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from jobs.base.errors import FrazilError
from jobs.clients.kafka.metadata import quick_kafka
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.source import Source
from jobs.tables.commit.stamp.offsets import TopicPartition

State = Literal["kept", "removed", "not written", "another", "unknown"]
_FORMAT = r"offset %o, timestamp %T, key %K bytes, value %S bytes, headers %h\n%k\n%s\n"
_NO_BROKERS = "HOST:PORT"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A record in Kafka.

    Attributes:
        state: `kept`: the log includes it; `removed`: the log begins later, by retention or deletion; `not written`:
            the log ends before it, or the partition does not exist; `another`: the topic or its log was recreated, so
            that another record has the offset; `unknown`: see `why`.
        command: kcat command that reads it and prints the offset it read: a compacted topic may return the next record.
        first, end: Start and end of the log; None if unknown.
        why: Remark: why nothing is known, or that the partition does not exist.
    """

    state: State
    command: str
    first: int | None = None
    end: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class SourceLogs:
    """Starts and ends of logs, queried once for all records.

    Attributes:
        bounds: First offset and end, by partition.
        why: Reason why nothing is known; otherwise empty.
        absent: Missing partitions of topics, with the topics' number of partitions.
    """

    settings: KafkaSettings
    bounds: Mapping[TopicPartition, tuple[int, int]]
    why: str = ""
    absent: Mapping[TopicPartition, str] = field(default_factory=dict)

    def record(self, partition: TopicPartition, offset: int, *, another: bool = False) -> SourceRecord:
        """One of the records.

        Args:
            another: Whether its coordinates belong to another record since.
        """
        command = read_command(self.settings, partition, offset)
        if partition in self.absent and not another:
            return SourceRecord("not written", command, why=self.absent[partition])
        if partition not in self.bounds:
            return SourceRecord("another" if another else "unknown", command, why=self.why)
        first, end = self.bounds[partition]
        state: State = "removed" if offset < first else "not written" if offset >= end else "kept"
        return SourceRecord("another" if another else state, command, first, end)


def source_logs(settings: KafkaSettings, partitions: Collection[TopicPartition]) -> SourceLogs:
    """Query the starts and ends of logs in Kafka; unavailable brokers cost a few seconds, and are no error."""
    wanted = list(dict.fromkeys(partitions))
    try:
        kafka = quick_kafka(settings)
        # Names are used unchanged, whether Kafka accepts them or not.
        there = kafka.topics(Source.model_construct(topics=tuple(dict.fromkeys(each.topic for each in wanted))))
        absent = {each: _partitions(each.topic, there[each.topic]) for each in wanted if _is_absent(each, there)}
        asked = [each for each in wanted if each not in absent]
        first, end = (kafka.earliest(asked), kafka.ends(asked).watermarks) if asked else ({}, {})
    except FrazilError as problem:
        return SourceLogs(settings, {}, problem.message)
    return SourceLogs(settings, {each: (first[each], end[each]) for each in asked}, absent=absent)


def _is_absent(partition: TopicPartition, there: Mapping[str, Collection[int]]) -> bool:
    # A topic without partitions may be invisible for the user: the query for offsets shows it.
    numbers = there.get(partition.topic, ())
    return bool(numbers) and partition.partition not in numbers


def _partitions(topic: str, numbers: Collection[int]) -> str:
    count = len(numbers)
    return f"topic {topic} has {count} partition{'' if count == 1 else 's'}" + (
        f", 0 to {count - 1}" if count > 1 else ", 0"
    )


def read_command(settings: KafkaSettings, partition: TopicPartition, offset: int) -> str:
    """Command that prints one Kafka record unchanged; it needs kcat on the machine.

    Security options are in the user's own librdkafka file: no secret is printed.
    """
    try:
        servers = settings.require_bootstrap()
    except FrazilError:
        servers = _NO_BROKERS
    secured = settings.security is not None and settings.security.protocol != "PLAINTEXT"
    options = " -F kcat.conf" if secured else ""
    place = f"-t {shlex.quote(partition.topic)} -p {partition.partition} -o {offset} -c 1"
    return f"kcat -C -e -q{options} -b {shlex.quote(servers)} {place} -f {shlex.quote(_FORMAT)}"
