"""Producer of the demo's payments, and the topic that they go to."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from jobs.errors import FrazilError
from jobs.kafka.record_producer import RecordProducer
from orchestration.cli.demo.payments import WriteValue, payments

PARTITIONS = 4


def ensure_topic(address: str, topic: str) -> None:
    """Create the topic, unless it exists.

    Raises:
        FrazilError: The broker refuses.
    """
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)]).values():
        try:
            future.result(timeout=60)
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
        write: Writes values; as JSON without it.
    """

    def __init__(
        self,
        address: str,
        topic: str,
        first: int,
        count: int,
        per_second: float | None = None,
        write: WriteValue | None = None,
    ) -> None:
        super().__init__(name="payments", daemon=True)
        self._topic: str = topic
        self._write: WriteValue | None = write
        self._first: int = first
        self._count: int = count
        self._pause: float = 1 / per_second if per_second else 0.0
        self._stop_early: threading.Event = threading.Event()
        self._problem: BaseException | None = None
        self.kinds: Counter[str] = Counter()
        self._producer: RecordProducer = RecordProducer(**{"bootstrap.servers": address})

    @property
    def acknowledged(self) -> int:
        """Payments that the broker has."""
        return self._producer.acknowledged

    def run(self) -> None:
        """Produce everything; an error is kept for `check`."""
        try:
            self._produce()
        except BaseException as problem:
            self._problem = problem

    def _produce(self) -> None:
        for number, payment in enumerate(payments(self._first, self._count, datetime.now(UTC), self._write)):
            if self._stop_early.wait(self._pause) if self._pause else self._stop_early.is_set():
                break
            self._producer.produce(self._topic, payment.value, payment.key)
            self.kinds[payment.kind] += 1
            if self._pause or number % 1000 == 0:
                self._producer.poll()
        self._producer.flush()

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
        if self._problem is not None or self._producer.refused is not None or self.acknowledged != self._count:
            raise FrazilError(
                f"{self.acknowledged:,} of {self._count:,} payments were acknowledged by the broker: "
                f"{self._problem or self._producer.refused or 'the rest was not sent in time'}",
                fix="frazil demo",
            )
