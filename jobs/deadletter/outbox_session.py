"""One hold on the transactional id of a stream's letters: transactions, and the position that goes with them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ClientPartition

from jobs.deadletter.connect_headers import Limits, letter_record
from jobs.deadletter.outbox_position import Published
from jobs.deadletter.outbox_topic import OutboxError, TopicCluster
from jobs.steps import step

GROUP = "frazil-dead-letters-"
# A process that was killed in a transaction holds up `read_committed` readers of the topic for so long at most; its
# successor ends the transaction at once.
_TRANSACTION_MS = 60_000
# Kafka forgets the offsets of a group without members some days after the last commit.
REFRESH_SECONDS = 3600.0
_POLL_SECONDS = 0.1
_COORDINATOR_SECONDS = 0.2
_NOT_YET = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
}
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}


def group_of(stream: str) -> str:
    """The consumer group, and the transactional id, of a stream's letters."""
    return GROUP + stream


class OutboxSession:
    """One producer that takes the transactional id of a stream's letters over, and what it commits.

    Args:
        cluster: Where the topic is.
        stream: The stream's id.
        topic: The topic.
        table_name: The dead-letter table, for headers and the group's text.
        check: Called before anything is committed; raises if this process has lost the stream.

    Raises:
        OutboxError: The topic is missing, or the cluster does not answer, or refuses us.
    """

    def __init__(
        self, cluster: TopicCluster, stream: str, topic: str, table_name: str, check: Callable[[], None]
    ) -> None:
        self._cluster: TopicCluster = cluster
        self._topic: str = topic
        self._table_name: str = table_name
        self._check: Callable[[], None] = check
        self._limits: Limits = cluster.limits()
        self._failed: KafkaError | None = None
        self._committed_at: float = float("-inf")
        self._group: Consumer = Consumer(
            cluster.options()
            | {"group.id": group_of(stream), "enable.auto.commit": False, "isolation.level": "read_committed"}
        )
        self._producer: Producer = Producer(
            cluster.options()
            | {
                "transactional.id": group_of(stream),
                "transaction.timeout.ms": _TRANSACTION_MS,
                "compression.type": "lz4",
                # That of Kafka's own producer, so that a key's letters stay together whoever writes.
                "partitioner": "murmur2_random",
                "message.max.bytes": min(max(self._limits.max_bytes, 1000), 1_000_000_000),
            }
        )

    def take_over(self) -> Published | None:
        """Fence whoever published before, and read how far it came; None if nobody ever did."""
        self._ask(lambda: self._producer.init_transactions(2 * self._cluster.timeout))
        found = self._cluster.ask(self._committed, self._group)
        if found.error:
            raise self._cluster.failure(KafkaException(found.error), self._group)
        return None if found.offset < 0 else Published.from_group(found.offset, found.metadata)

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

    def send(self, letters: pa.Table, through: Published) -> None:
        """Publish letters, and that everything up to `through` is published, as one."""
        step("outbox_before_produce")
        self._ask(self._producer.begin_transaction)
        now_ms = time.time_ns() // 1_000_000
        for letter in letters.to_pylist():
            self._produce(letter, now_ms)
        self._deliver()
        if self._failed is not None:
            raise self._cluster.failure(KafkaException(self._failed), self._producer)
        self._offer(through)
        step("outbox_before_commit")
        self._commit()
        step("outbox_after_commit")

    def refresh(self, position: Published, *, now: bool = False) -> None:
        """Commit a position again that Kafka would forget otherwise."""
        if now or time.monotonic() - self._committed_at > REFRESH_SECONDS:
            self._ask(self._producer.begin_transaction)
            self._offer(position)
            self._commit()

    def close(self) -> None:
        """Abort what is open, if the cluster answers."""
        with contextlib.suppress(KafkaException):
            self._producer.abort_transaction(min(2.0, self._cluster.timeout))
        self._group.close()

    def _produce(self, letter: dict[str, Any], now_ms: int) -> None:
        record = letter_record(letter, self._table_name, self._limits, now_ms)
        if record is None:
            raise OutboxError(
                f"topic {self._topic} takes {self._limits.max_bytes} bytes, and not even the reasons of the dead "
                f"letter {letter['topic']}-{letter['partition']} offset {letter['offset']} fit in.",
                fix=f"raise max.message.bytes of topic {self._topic}",
                lasting=True,
            )
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
                )
                self._poll(0)
                return
            except BufferError:
                if time.monotonic() > deadline:
                    raise OutboxError(f"Kafka at {self._cluster.servers} takes no more letters") from None
                self._poll(_POLL_SECONDS)

    def _deliver(self) -> None:
        """Wait until the broker has all letters. (The client's own `flush` cannot say that it was fenced.)"""
        deadline = time.monotonic() + self._cluster.timeout
        while len(self._producer):
            if time.monotonic() > deadline:
                raise OutboxError(f"Kafka at {self._cluster.servers} did not take the letters in time")
            self._poll(_POLL_SECONDS)

    def _poll(self, seconds: float) -> None:
        self._ask(lambda: self._producer.poll(seconds))

    def _offer(self, position: Published) -> None:
        """Make the position part of the open transaction."""
        offset = ClientPartition(self._topic, 0, position.offset, position.metadata(self._table_name))
        self._ask(
            lambda: self._producer.send_offsets_to_transaction(
                [offset], self._group.consumer_group_metadata(), self._cluster.timeout
            )
        )

    def _commit(self) -> None:
        self._check()
        self._ask(lambda: self._producer.commit_transaction(self._cluster.timeout))
        self._committed_at = time.monotonic()

    def _ask(self, question: Callable[[], Any]) -> None:
        """Do a step of a transaction, again while Kafka says that it helps, until the time is over."""
        deadline = time.monotonic() + self._cluster.timeout
        while True:
            try:
                question()
                return
            except KafkaException as problem:
                error: KafkaError = problem.args[0]
                if error.code() in _FENCED:
                    raise OutboxError(
                        "another process publishes the letters; it has taken the transactional id over"
                    ) from problem
                if not error.retriable() or time.monotonic() > deadline:
                    raise self._cluster.failure(problem, self._producer) from problem

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None:
            self._failed = error
