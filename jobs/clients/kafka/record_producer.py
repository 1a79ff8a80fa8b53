"""Idempotent producer that counts the records which the brokers have acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.base.errors import FrazilError

FLUSH_SECONDS = 60.0
TOPIC_PARTITIONS = 4


class RecordProducer:
    """Produces records idempotently, so that records of a partition keep their order.

    Args:
        options: Options of the client, at least brokers and security; they override this class's defaults.

    Attributes:
        acknowledged: Number of records that the brokers have acknowledged.
        refused: Why the last refused record was refused.
    """

    def __init__(self, **options: Any) -> None:
        self.acknowledged: int = 0
        self.refused: str | None = None
        self._producer: Producer = Producer(
            {
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 50,
                "batch.num.messages": 10_000,
                "log_level": 0,
                **options,
            }
        )

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int = -1,
        headers: Sequence[tuple[str, bytes]] = (),
        on_delivery: Callable[[Message], None] | None = None,
    ) -> None:
        """Hand over a record; wait while the client's queue is full.

        Args:
            partition: Partition; -1 to let the client choose, by the key if there is one.
            headers: Headers in their order.
            on_delivery: Called with the record when the brokers have it.

        Raises:
            FrazilError: The client refuses the record, for example because it is too long.
        """

        more: dict[str, Any] = {"headers": list(headers)} if headers else {}

        def delivered(error: Any, message: Message) -> None:
            if error is not None:
                self.refused = error.str()
                return
            self.acknowledged += 1
            if on_delivery is not None:
                on_delivery(message)

        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=delivered, **more)
                return
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as problem:
                raise FrazilError(f"topic {topic}: {problem.args[0].str()}") from problem

    def poll(self, seconds: float = 0.0) -> None:
        """Handle the brokers' answers; wait at most `seconds` for one."""
        self._producer.poll(seconds)

    def flush(self, seconds: float = FLUSH_SECONDS) -> int:
        """Wait for the brokers' answers; return how many records still wait."""
        return self._producer.flush(seconds)


def ensure_topic(address: str, topic: str, partitions: int = TOPIC_PARTITIONS) -> None:
    """Create the topic, unless it exists.

    Raises:
        FrazilError: The broker refuses.
    """
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)]).values():
        try:
            future.result(timeout=60)
        except KafkaException as problem:
            error: Any = problem.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise FrazilError(f"topic {topic} could not be created: {error.str()}") from problem
