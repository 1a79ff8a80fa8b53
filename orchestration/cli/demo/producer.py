"""Producer of the demo's payments, and the topic that they go to."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.errors import FrazilError
from orchestration.cli.demo.payments import payments

PARTITIONS = 4
_FLUSH_SECONDS = 60.0


def ensure_topic(address: str, topic: str) -> None:
    """Create the topic, unless it exists.

    Raises:
        FrazilError: The broker refuses.
    """
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)]).values():
        try:
            future.result(timeout=20)
        except KafkaException as problem:
            error: Any = problem.args[0]
            if error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise FrazilError(f"topic {topic} could not be created: {error.str()}") from problem


class PaymentProducer(threading.Thread):
    """Produces payments in the background; `join` it, then `check` it.

    Args:
        address: The broker.
        topic: Where they go.
        first: Number of the first payment.
        count: How many.
        per_second: How fast; None as fast as the broker takes them.
    """

    def __init__(self, address: str, topic: str, first: int, count: int, per_second: float | None = None) -> None:
        super().__init__(name="payments", daemon=True)
        self._topic: str = topic
        self._first: int = first
        self._count: int = count
        self._pause: float = 1 / per_second if per_second else 0.0
        self._stop_early: threading.Event = threading.Event()
        self._problem: BaseException | None = None
        self._refused: str | None = None
        self.kinds: Counter[str] = Counter()
        self.acknowledged: int = 0
        self._producer: Producer = Producer(
            {
                "bootstrap.servers": address,
                "acks": "all",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 50,
                "batch.num.messages": 10_000,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Produce everything; an error is kept for `check`."""
        try:
            self._produce()
        except BaseException as problem:
            self._problem = problem

    def _produce(self) -> None:
        for number, payment in enumerate(payments(self._first, self._count, datetime.now(UTC))):
            if self._stop_early.wait(self._pause) if self._pause else self._stop_early.is_set():
                break
            while True:
                try:
                    self._producer.produce(self._topic, payment.value, payment.key, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self.kinds[payment.kind] += 1
            if self._pause or number % 1000 == 0:
                self._producer.poll(0)
        self._producer.flush(_FLUSH_SECONDS)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._refused = error.str()

    def stop(self) -> None:
        """Produce no more, and wait for what is on its way."""
        self._stop_early.set()
        with contextlib.suppress(RuntimeError):
            self.join(5)

    def check(self) -> None:
        """Raise unless every payment was acknowledged by the broker.

        Raises:
            FrazilError: Some were not.
        """
        if self._problem is not None or self._refused is not None or self.acknowledged != self._count:
            raise FrazilError(
                f"{self.acknowledged:,} of {self._count:,} payments were acknowledged by the broker: "
                f"{self._problem or self._refused or 'the rest was not sent in time'}",
                fix="frazil demo",
            )
