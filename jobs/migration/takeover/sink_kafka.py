"""Kafka's side of a sink: members and offsets of its groups, and the events on its control topic."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from jobs.clients.kafka.group_offsets import COORDINATOR_NOT_READY
from jobs.clients.kafka.metadata import KafkaLog, KafkaUnavailableError
from jobs.clients.kafka.refusals import lacks_right, missing_rule, user_of
from jobs.clients.kafka.topic_reader import TopicReader
from jobs.config.services.kafka_options import connection_options
from jobs.config.services.security import librdkafka_options
from jobs.config.settings.settings import KafkaSettings
from jobs.migration.sink_protocol.control_events import ControlEvent, decode_event
from jobs.migration.takeover.sink import broker_addresses
from jobs.tables.commit.history.sink_record import ControlOffsets
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition

T = TypeVar("T")
log = logging.getLogger(__name__)

_FIX = "check that the brokers run and that the user may describe and read the sink's group, then run this again"
_LOADING_SECONDS = 60.0
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ControlLog:
    """A control topic as Kafka keeps it.

    Attributes:
        earliest: First offset that is kept, by partition.
        end: End of what is decided, by partition.
        undecided: Offsets of open transactions behind that.
    """

    earliest: ControlOffsets
    end: ControlOffsets
    undecided: int


class SinkKafka:
    """Connection to the brokers of a sink; it joins no group.

    Args:
        settings: Brokers and security.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        # Aborted announcements do not count, whatever isolation the stream reads with.
        self._settings: KafkaSettings = settings.model_copy(update={"isolation": "read_committed"})
        self._bootstrap: str = settings.require_bootstrap()
        self._timeout: float = settings.request_timeout.total_seconds()
        self._log: KafkaLog = KafkaLog(self._settings)
        common: dict[str, Any] = {
            **connection_options(settings.options),
            "bootstrap.servers": self._bootstrap,
            "log_level": 0,
            "error_cb": lambda error: None,
            "socket.timeout.ms": int(self._timeout * 1000),
        }
        self._consumer_options: dict[str, Any] = {**common, **librdkafka_options(settings.security)}
        self._admin: AdminClient = AdminClient({**common, **librdkafka_options(settings.admin_security)})

    @property
    def brokers(self) -> frozenset[str]:
        """Addresses by which the brokers are reached, each as `host:port`."""
        return broker_addresses(self._bootstrap)

    def reported_brokers(self) -> frozenset[str]:
        """Addresses of all brokers as they report them, each as `host:port`."""
        brokers = self._ask(lambda: self._admin.list_topics(timeout=self._timeout).brokers, "brokers")
        return broker_addresses(",".join(f"{broker.host}:{broker.port}" for broker in brokers.values()))

    def members(self, group: str) -> int:
        """Number of members of a consumer group; 0 also if the group does not exist."""

        def ask() -> int:
            try:
                answers = self._admin.describe_consumer_groups([group], request_timeout=self._timeout)
                return len(answers[group].result(2 * self._timeout).members)
            except KafkaException as problem:
                if problem.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
                    return 0
                raise

        return self._ask(ask, f"group {group}")

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Committed next offsets of a group, without those of transactions that are still open.

        Raises:
            KafkaUnavailableError: A transaction with offsets of the group stays open, or the brokers do not answer.
        """
        wanted = [ClientPartition(partition.topic, partition.partition) for partition in partitions]
        if not wanted:
            return {}

        def ask() -> dict[TopicPartition, int]:
            # librdkafka asks for stable offsets only with this isolation.
            options = {"group.id": group, "isolation.level": "read_committed", "enable.auto.commit": False}
            consumer = Consumer({**self._consumer_options, **options})
            try:
                answers = consumer.committed(wanted, timeout=self._timeout)
            finally:
                consumer.close()
            for answer in answers:
                if answer.error:
                    raise KafkaException(answer.error)
            return {
                TopicPartition(answer.topic, answer.partition): answer.offset
                for answer in answers
                if answer.offset >= 0
            }

        return self._ask(ask, f"group {group}")

    def topics_of(self, group: str) -> set[str]:
        """Topics that a group has committed offsets of."""

        def ask() -> set[str]:
            request = ConsumerGroupTopicPartitions(group)
            answers = self._admin.list_consumer_group_offsets([request], request_timeout=self._timeout)
            return {answer.topic for answer in answers[group].result(2 * self._timeout).topic_partitions or ()}

        return self._ask(ask, f"group {group}")

    def commit(self, group: str, positions: Positions) -> None:
        """Commit positions as the offsets of a group without members.

        Raises:
            KafkaUnavailableError: The group has members, or the brokers refuse.
        """
        wanted = [ClientPartition(at.topic, at.partition, offset) for at, offset in sorted(positions.items())]

        def ask() -> None:
            request = ConsumerGroupTopicPartitions(group, wanted)
            answers = self._admin.alter_consumer_group_offsets([request], request_timeout=self._timeout)
            for answer in answers[group].result(2 * self._timeout).topic_partitions:
                if answer.error:
                    raise KafkaException(answer.error)

        self._ask(ask, f"group {group}")

    def partitions(self, topics: Collection[str]) -> list[TopicPartition]:
        """Partitions of those of some topics that exist."""
        known_topics = self._ask(lambda: self._admin.list_topics(timeout=self._timeout).topics, "topics")
        return [
            TopicPartition(name, number)
            for name in sorted(topics)
            if name in known_topics
            for number in known_topics[name].partitions
        ]

    def control_log(self, topic: str) -> ControlLog | None:
        """A control topic; None if there is none of that name."""
        partitions = self.partitions([topic])
        if not partitions:
            return None
        earliest, ends = self._log.earliest(partitions), self._log.ends(partitions)
        return ControlLog(
            {partition.partition: offset for partition, offset in earliest.items()},
            {partition.partition: offset for partition, offset in ends.latest.items()},
            sum(ends.undecided().values()),
        )

    def cleanup_policy(self, topic: str) -> str | None:
        """Setting `cleanup.policy` of a topic that exists; None if the user may not read it."""
        resource = ConfigResource(ResourceType.TOPIC, topic)

        def ask() -> str | None:
            try:
                answers = self._admin.describe_configs([resource], request_timeout=self._timeout)
                return answers[resource].result(2 * self._timeout)["cleanup.policy"].value
            except KafkaException as problem:
                if lacks_right(problem.args[0]):
                    return None
                raise

        return self._ask(ask, f"topic {topic}")

    def events(
        self, topic: str, ranges: Mapping[int, OffsetRange], on_read: Callable[[int], None] = lambda _: None
    ) -> Iterator[ControlEvent]:
        """Decided events of a control topic, partition by partition.

        Args:
            ranges: Offsets by partition.
            on_read: Called with the number of events that were read.

        Raises:
            UnreadableEventError: A record is no event of the sink.
        """
        count = 0
        with TopicReader(self._settings, "frazil-takeover") as reader:
            for number, range_ in sorted(ranges.items()):
                for batch in reader.read(TopicPartition(topic, number), range_):
                    for message in batch:
                        value = message.value()
                        if value is not None:
                            yield decode_event(bytes(value), number, message.offset() or 0)
                    count += len(batch)
                    on_read(count)

    def _ask(self, question: Callable[[], T], subject: str) -> T:
        deadline = time.monotonic() + _LOADING_SECONDS
        while True:
            try:
                return question()
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                if error.code() in COORDINATOR_NOT_READY and time.monotonic() < deadline:
                    time.sleep(_PAUSE_SECONDS)
                    continue
                message, fix = f"Kafka at {self._bootstrap}: {subject}: {error.str()}", _FIX
                if lacks_right(error):
                    user = user_of(self._settings.admin_security)
                    missing, fix = missing_rule(error, self._bootstrap, user, ("Read",), subject.rpartition(" ")[2])
                    message = f"{message}: {missing}"
                raise KafkaUnavailableError(message, fix=fix) from problem
            except TimeoutError as problem:
                raise KafkaUnavailableError(
                    f"Kafka at {self._bootstrap}: {subject}: nothing came for {2 * self._timeout:.0f} s", fix=_FIX
                ) from problem
