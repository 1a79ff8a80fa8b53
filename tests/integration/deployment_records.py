"""Records of archived deployments: how scripts and tests produce them, and where they stand in their topics."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from confluent_kafka import Producer

from tests.helpers.topics import idempotent_producer, read_topic

Value = dict[str, Any] | bytes | None
Coordinates = tuple[str, int, int]
"""Topic, partition and offset of a record."""


def several(make: Callable[..., dict[str, Any]], numbers: Iterator[int], count: int, **changed: Any) -> list[Value]:
    """Values of `count` records, each made with the next number."""
    return [make(next(numbers), **changed) for _ in range(count)]


def produce(
    address: str,
    topic: str,
    values: Sequence[Value],
    *,
    partitions: int = 2,
    first: int = 0,
    ending: str = "",
    headers: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Produce values round-robin to the partitions of a topic.

    Args:
        partitions: How many partitions get records.
        first: Number of the first of them.
        ending: `commit` or `abort` to produce in one transaction; empty for none.
    """
    options = {"bootstrap.servers": address, "transactional.id": "producer"}
    producer = Producer(options) if ending else idempotent_producer(address, topic)
    if ending:
        producer.init_transactions(120)
        producer.begin_transaction()
    for index, value in enumerate(values):
        encoded = json.dumps(value).encode() if isinstance(value, dict) else value
        partition = first + index % partitions
        producer.produce(topic, key=b"k%d" % index, value=encoded, partition=partition, headers=list(headers))
    assert producer.flush(120) == 0
    if ending:
        producer.commit_transaction(30) if ending == "commit" else producer.abort_transaction(30)


def in_ranges(offsets: Iterable[int]) -> str:
    """Offsets as text: `0-17 19 21-30`."""
    ranges: list[list[int]] = []
    for offset in sorted(offsets):
        if ranges and offset == ranges[-1][-1] + 1:
            ranges[-1][1:] = [offset]
        else:
            ranges.append([offset])
    return " ".join("-".join(map(str, bounds)) for bounds in ranges)


def offsets_of(address: str, topic: str) -> dict[str, dict[str, str]]:
    """Offsets of a topic's records by partition, as ranges: those with a value, and tombstones."""
    records = read_topic(address, topic)
    return {
        name: {
            str(number): in_ranges(
                offset for partition, offset, value in records if (partition, value is None) == (number, empty)
            )
            for number in sorted({partition for partition, _, _ in records})
        }
        for name, empty in (("values", False), ("tombstones", True))
    }


def coordinates(topic: str, offsets: dict[str, str]) -> set[Coordinates]:
    """Coordinates of the records whose offsets `offsets_of` gives by partition."""
    ranges = [(int(partition), text.split("-")) for partition, texts in offsets.items() for text in texts.split()]
    return {
        (topic, partition, offset)
        for partition, bounds in ranges
        for offset in range(int(bounds[0]), int(bounds[-1]) + 1)
    }
