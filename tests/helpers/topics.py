"""Topics of the real broker as tests make, fill, empty and read them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.helpers.waiting import wait_for


def create_topic(address: str, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    """Create a topic and wait until the broker knows it."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=dict(config or {}))]).values():
        future.result(30)
    wait_for(lambda: topic in admin.list_topics(timeout=60).topics, f"topic {topic}")


def delete_topic(address: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.delete_topics([topic]).values():
        future.result(30)
    wait_for(lambda: topic not in admin.list_topics(timeout=60).topics, f"the end of topic {topic}")


def idempotent_producer(address: str, topic: str) -> Producer:
    """A producer that has met the broker: one that has not waits half a second or more for its producer id."""
    producer = Producer({"bootstrap.servers": address, "acks": "all", "enable.idempotence": True})
    producer.list_topics(topic, timeout=60)
    return producer


def messages_of(address: str, topic: str, options: Mapping[str, Any] | None = None) -> Iterator[Message]:
    """Messages of a topic that a reader with these options of librdkafka sees."""
    own = {"group.id": f"read-{uuid.uuid4().hex}", "enable.auto.commit": False, "enable.partition.eof": True}
    # At the end the broker answers at once, not after half a second.
    quick = {"fetch.wait.max.ms": 10}
    consumer = Consumer({"bootstrap.servers": address, **quick, **(options or {}), **own})
    try:
        open_ends = set(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in open_ends])
        while open_ends:
            message = consumer.poll(20)
            assert message is not None, f"no end of {topic} in sight"
            error = message.error()
            if error is None:
                yield message
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            open_ends.discard(message.partition() or 0)
    finally:
        consumer.close()


def read_topic(address: str, topic: str) -> list[tuple[int, int, bytes | None]]:
    """Records of a topic as partition, offset and value; by partition and offset."""
    found: list[tuple[int, int, bytes | None]] = []
    for message in messages_of(address, topic):
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        found.append((partition, offset, value if value is None else bytes(value)))
    return sorted(found, key=lambda record: record[:2])
