"""Record producer: records to a topic, as fast as the brokers take them, with a count of what they acknowledged."""

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
    """Produces records idempotently; what comes before another record in a partition arrives before it.

    Args:
        options: The client's: the brokers at least, and how to speak to them; over those that are usual here.

    Attributes:
        acknowledged: Records that the brokers have.
        refused: Why the last record that they did not take was refused.
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
        """Hand over a record; waits while the client has no room.

        Args:
            partition: -1: by the key, or as the client likes.
            headers: In their order.
            on_delivery: Called with the record once the brokers have it.

        Raises:
            FrazilError: The client does not take it, such as one that is too long.
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
        """Take the brokers' answers; waits so long for one."""
        self._producer.poll(seconds)

    def flush(self, seconds: float = FLUSH_SECONDS) -> int:
        """Wait until the brokers have answered for all; returns how many records still wait."""
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
