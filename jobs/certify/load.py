"""Producing a certificate's records, and keeping what has to become of each, by partition and offset."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from confluent_kafka import KafkaException, Producer

from jobs.certify.records import Fate, Kind, record
from jobs.commit.offsets import TopicPartition
from jobs.errors import FrazilError
from jobs.spec.security import librdkafka_options
from jobs.spec.settings import KafkaSettings

_FLUSH_SECONDS = 60.0

Fates = dict[int, npt.NDArray[np.uint8]]


class Load:
    """What the topic was given. The broker's own answers say which offset a record has.

    Args:
        kafka: Where the brokers are, and how to speak to them.
        topic: Nobody else produces to it.
        partitions: How many it has.
        seed: The same seed gives the same records, in the same partitions.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, partitions: int, seed: int) -> None:
        self.topic: str = topic
        self.kinds: Counter[Kind] = Counter()
        self._seed: int = seed
        self._partitions: int = partitions
        self._next: int = 0
        self._fates: list[bytearray] = [bytearray() for _ in range(partitions)]
        self._refused: str | None = None
        options: dict[str, Any] = {
            "bootstrap.servers": kafka.require_bootstrap(),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
            **librdkafka_options(kafka.security),
        }
        self._producer: Producer = Producer(options)

    def produce(self, count: int) -> None:
        """Produce the next records, and wait until the brokers have them.

        Raises:
            FrazilError: They do not take them.
        """
        for number in range(self._next, self._next + count):
            made = record(self._seed, number)
            partition = random.Random(f"{self._seed}/partition/{number}").randrange(self._partitions)
            self.kinds[made.kind] += 1
            self._send(partition, made.key, made.value, made.fate)
        self._next += count
        left = self._producer.flush(_FLUSH_SECONDS)
        if left or self._refused:
            raise FrazilError(
                f"topic {self.topic}: the brokers did not take the load: {self._refused or f'{left} records wait'}.",
                fix="check `kafka` in the settings with `frazil validate`",
            )

    @property
    def produced(self) -> int:
        """Records that the brokers have."""
        return sum(map(len, self._fates))

    def fates(self) -> Fates:
        """By partition, what has to become of the record at each offset."""
        return {number: np.frombuffer(bytes(fates), dtype=np.uint8) for number, fates in enumerate(self._fates)}

    def ends(self) -> dict[TopicPartition, int]:
        """The next offset of each partition."""
        return {TopicPartition(self.topic, number): len(fates) for number, fates in enumerate(self._fates)}

    def pass_over(self, partition: int, start: int, end: int) -> None:
        """The records `[start, end)` of a partition are skipped on purpose, and have to be nowhere."""
        self._fates[partition][start:end] = bytes([Fate.PASSED_OVER]) * (end - start)

    def _send(self, partition: int, key: bytes, value: bytes | None, fate: Fate) -> None:
        while True:
            try:
                self._producer.produce(
                    self.topic, value, key, partition=partition, on_delivery=partial(self._delivered, fate)
                )
                break
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as problem:
                raise FrazilError(f"topic {self.topic}: {problem.args[0].str()}") from problem
        self._producer.poll(0)

    def _delivered(self, fate: Fate, error: Any, message: Any) -> None:
        if error is not None:
            self._refused = error.str()
            return
        fates, offset = self._fates[message.partition()], message.offset()
        if offset != len(fates):
            self._refused = f"partition {message.partition()}: offset {offset} where {len(fates)} was next"
            return
        fates.append(fate)
