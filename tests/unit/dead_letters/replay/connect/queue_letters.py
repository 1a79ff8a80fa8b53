"""Messages of a queue, Kafka Connect's dead letters, and a reader over them in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME

from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

QUEUE = TopicPartition("dlq", 0)
SOURCE = "of.connect"


class Letter:
    """A message of Connect's dead-letter queue: of a record of a type, or of another value."""

    def __init__(self, at: int, kind: str | None = "INS", *, topic: str = SOURCE, value: bytes | None = None) -> None:
        self.at: int = at
        self.place: int = 0
        self._topic: str = topic
        self._value: bytes = value or json.dumps({"id": f"a{at}", "type": kind, "n": at}).encode()

    def headers(self) -> list[tuple[str, bytes]]:
        origin = {"topic": self._topic, "partition": "0", "offset": str(self.at)}
        return [(f"__connect.errors.{name}", text.encode()) for name, text in origin.items()]

    def __getattr__(self, name: str) -> Any:
        told = {"key": b"k", "value": self._value, "topic": QUEUE.topic, "partition": 0, "offset": self.place}
        return lambda: told.get(name, (TIMESTAMP_CREATE_TIME, 1_700_000_000_000))


class Reader:
    """A topic reader over letters, some to a block."""

    def __init__(self, letters: Sequence[Letter]) -> None:
        self.letters: list[Letter] = list(letters)
        for place, each in enumerate(self.letters):
            each.place = place

    def read(self, partition: TopicPartition, range_: OffsetRange) -> Iterator[list[Letter]]:
        mine = self.letters[range_.start : range_.end]
        yield from (mine[at : at + 2] for at in range(0, len(mine), 2))
