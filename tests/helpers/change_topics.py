"""Topics of Debezium's connector as they are read while it runs: which changes have come, and how often."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.helpers.debezium import SIGNALS

_WAIT_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Change:
    """A record that is a change.

    Attributes:
        table: Table of the source.
        op: Debezium's.
        position: Position in the source's log, as text.
        key: The record's, as text; None if it has none.
        row: The image behind the change, or before it where there is none behind it.
    """

    table: str
    partition: int
    offset: int
    op: str
    position: str
    key: str | None
    row: dict[str, Any]

    @property
    def log_position(self) -> tuple[int | None, int]:
        """The end of the last commit before it, if the connector has seen one, and its own place."""
        committed, place = json.loads(self.position)
        return committed and int(committed), int(place)

    @property
    def key_row(self) -> dict[str, Any] | None:
        """The key's columns."""
        return None if self.key is None else json.loads(self.key)


class ChangeTopics:
    """Changes that a connector has written so far; as a context manager it closes its consumer.

    Args:
        address: Address of the broker.
        prefix: Prefix of the topics.
    """

    def __init__(self, address: str, prefix: str) -> None:
        self.changes: list[Change] = []
        self.tombstones: Counter[str] = Counter()
        self._begin: int = 0
        self._prefix: str = f"{prefix}.public."
        self._next: dict[tuple[str, int], int] = {}
        self._consumer: Consumer = Consumer({"bootstrap.servers": address, "group.id": prefix, "log_level": 0})

    def __enter__(self) -> ChangeTopics:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def distinct(self) -> Counter[tuple[str, str]]:
        """Numbers of distinct changes by table and operation, without rows that snapshots read.

        Those before `begin_anew` are not counted.
        """
        changes = self.changes[self._begin :]
        found = {(each.table, each.op, each.position, each.key) for each in changes if each.op != "r"}
        return Counter((table, op) for table, op, _, _ in found)

    def read(self) -> Counter[str]:
        """Numbers of rows that snapshots have read of each table; those before `begin_anew` are not counted."""
        return Counter(each.table for each in self.changes[self._begin :] if each.op == "r")

    def named(self, table: str) -> list[dict[str, Any]]:
        """The keys of a table's changes; those before `begin_anew` are left out."""
        found = (each.key_row for each in self.changes[self._begin :] if each.table == table)
        return [each for each in found if each is not None]

    def begin_anew(self) -> None:
        """Begin another source timeline: only later changes count."""
        self.poll()
        self._begin = len(self.changes)

    def poll(self) -> None:
        """Read what is there now."""
        ends = self._ends()
        behind = {at: end for at, end in ends.items() if self._next.get(at, 0) < end}
        if not behind:
            return
        self._consumer.assign([TopicPartition(*at, self._next.get(at, 0)) for at in behind])
        while any(self._next.get(at, 0) < end for at, end in behind.items()):
            for message in self._consumer.consume(1000, _WAIT_SECONDS):
                assert message.error() is None, message.error()
                self._take(message)
        self._consumer.unassign()

    def _ends(self) -> dict[tuple[str, int], int]:
        listed = self._consumer.list_topics(timeout=60).topics
        topics = {t: each for t, each in listed.items() if t.startswith(self._prefix) and not t.endswith(SIGNALS)}
        at = [(topic, partition) for topic, each in topics.items() for partition in each.partitions]
        found: dict[tuple[str, int], int] = {}
        for each in at:
            # One that was made just now may have no leader yet.
            with contextlib.suppress(KafkaException):
                found[each] = self._consumer.get_watermark_offsets(TopicPartition(*each), timeout=60)[1]
        return found

    def _take(self, message: Any) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        self._next[topic, partition] = offset + 1
        table = topic.removeprefix(self._prefix)
        if message.value() is None:
            self.tombstones[table] += 1
            return
        payload = json.loads(message.value())["payload"]
        key = None if message.key() is None else json.dumps(json.loads(message.key())["payload"])
        row = payload.get("after") or payload.get("before") or {}
        self.changes.append(Change(table, partition, offset, payload["op"], payload["source"]["sequence"], key, row))
