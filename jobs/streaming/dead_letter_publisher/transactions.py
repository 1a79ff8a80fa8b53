"""Kafka transactions under one id: they commit records together with a consumer group's position."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from jobs.streaming.dead_letter_publisher.topic import OutboxError, TopicCluster
from jobs.tables.dead_letter_table.kafka_record import KafkaRecord

# Longest time that a process killed in a transaction blocks `read_committed` readers; a successor ends the transaction
# at once.
_TRANSACTION_MS = 60_000
_POLL_SECONDS = 0.1
_BY_KEY = -1
_COORDINATOR_SECONDS = 0.2
_NOT_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


class Transactions:
    """Producer that takes a transactional id over, with the consumer group of the same name.

    Args:
        name: Name of the transactional id and of the group.
        topic: Topic of the records; the group's position is that of its partition 0.
        max_bytes: Size of the largest record that the topic takes.
        check: Called before each commit; raises if this process has lost the stream.

    Attributes:
        committed_at: Time of the last commit, by the monotonic clock.
    """

    def __init__(self, cluster: TopicCluster, name: str, topic: str, max_bytes: int, check: Callable[[], None]) -> None:
        self.committed_at: float = float("-inf")
        cluster.identity = name
        self._cluster: TopicCluster = cluster
        self._topic: str = topic
        self._check: Callable[[], None] = check
        self._failed: KafkaError | None = None
        self._group: Consumer = Consumer(
            cluster.options() | {"group.id": name, "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        self._producer: Producer = Producer(
            cluster.options()
            | {
                "transactional.id": name,
                "transaction.timeout.ms": _TRANSACTION_MS,
                "compression.type": "lz4",
                # The partitioner of Kafka's Java producer, so that a key's records stay together whichever client
                # writes.
                "partitioner": "murmur2_random",
                "message.max.bytes": min(max(max_bytes, 1000), 1_000_000_000),
            }
        )

    def take_over(self) -> tuple[int, str | None] | None:
        """Fence a former holder of the id, and read the group's position and text; None if there is none.

        An open transaction of the former holder is aborted, or its commit is completed.

        Raises:
            OutboxError: The cluster does not answer or refuses.
        """
        self._ask(lambda: self._producer.init_transactions(2 * self._cluster.timeout))
        found = self._cluster.ask(self._committed, self._group)
        if found.error:
            raise self._cluster.failure(KafkaException(found.error), self._group)
        return None if found.offset < 0 else (found.offset, found.metadata)

    def begin(self) -> None:
        """Begin a transaction."""
        self._ask(self._producer.begin_transaction)

    def produce(self, record: KafkaRecord, partition: int | None = None) -> None:
        """Produce a record; without a partition the key decides."""
        deadline = time.monotonic() + self._cluster.timeout
        headers: list[tuple[str, str | bytes | None]] = list(record.headers)
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    record.value,
                    record.key,
                    headers=headers,
                    timestamp=record.timestamp_ms or 0,
                    on_delivery=self._delivered,
                    partition=_BY_KEY if partition is None else partition,
                )
                self._poll(0)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise OutboxError(f"Kafka at {self._cluster.servers} takes no more dead letters") from None
                self._poll(_POLL_SECONDS)

    def deliver(self) -> None:
        """Wait until the broker has all records. (The client's own `flush` does not report that it was fenced.)"""
        deadline = time.monotonic() + self._cluster.timeout
        while len(self._producer):
            if time.monotonic() > deadline:
                raise OutboxError(f"Kafka at {self._cluster.servers} did not take the dead letters in time")
            self._poll(_POLL_SECONDS)
        if self._failed is not None:
            raise self._cluster.failure(KafkaException(self._failed), self._producer)

    def offer(self, offset: int, text: str) -> None:
        """Add a position of the group to the open transaction."""
        position = ClientPartition(self._topic, 0, offset, text)
        self._ask(
            lambda: self._producer.send_offsets_to_transaction(
                [position], self._group.consumer_group_metadata(), self._cluster.timeout
            )
        )

    def commit(self) -> None:
        """Commit the transaction."""
        self._check()
        self._ask(lambda: self._producer.commit_transaction(self._cluster.timeout))
        self.committed_at = time.monotonic()

    def close(self) -> None:
        """Abort an open transaction, if the cluster answers."""
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(min(2.0, self._cluster.timeout))
        self._group.close()

    def _committed(self) -> ClientPartition:
        deadline = time.monotonic() + self._cluster.timeout
        while True:
            try:
                return self._group.committed([ClientPartition(self._topic, 0)], timeout=self._cluster.timeout)[0]
            except KafkaException as problem:
                # The first group of a broker waits for its coordinator.
                if problem.args[0].code() not in _NOT_YET or time.monotonic() > deadline:
                    raise
            time.sleep(_COORDINATOR_SECONDS)

    def _poll(self, seconds: float) -> None:
        self._ask(lambda: self._producer.poll(seconds))

    def _ask(self, question: Callable[[], Any]) -> None:
        """Call a step of a transaction, and repeat it while Kafka reports that this helps and time is left."""
        deadline = time.monotonic() + self._cluster.timeout
        while True:
            try:
                question()
                return
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                if error.code() in _FENCED:
                    raise OutboxError(
                        "another process publishes the dead letters; it has taken over the transactional id"
                    ) from problem
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._cluster.failure(problem, self._producer) from problem

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error
