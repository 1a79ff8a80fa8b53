"""Ranges of a topic read again: also small ones, those with nothing to see behind their last record, and lost ones."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from confluent_kafka import Producer

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.kafka.metadata import KafkaUnavailableError
from jobs.kafka.topic_reader import TopicReader
from jobs.spec.settings import KafkaSettings
from tests.integration.topics import create_topic, idempotent_producer

pytestmark = pytest.mark.integration

Read = Callable[[int, int], list[bytes | None]]


@pytest.fixture
def topic(broker: str, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    create_topic(broker, name, 1)
    producer = idempotent_producer(broker, name)
    for number in range(50):
        producer.produce(name, b"%d" % number, partition=0)
    assert producer.flush(30) == 0
    return name


@pytest.fixture
def read(broker: str, topic: str) -> Read:
    settings = KafkaSettings(bootstrap_servers=broker, request_timeout=timedelta(seconds=3))

    def values(start: int, end: int) -> list[bytes | None]:
        with TopicReader(settings, "test") as reader:
            lots = reader.read(TopicPartition(topic, 0), OffsetRange(start, end))
            return [message.value() for lot in lots for message in lot]

    return values


def test_small_ranges_are_read_without_waiting_for_more(read: Read) -> None:
    began = time.monotonic()
    for start in range(40):
        assert read(start, start + 3) == [b"%d" % number for number in range(start, start + 3)]
    # Each would wait a second or half of one: for a lot to fill, or for the broker's word about the end of the log.
    assert time.monotonic() - began < 30


def test_a_range_ends_behind_what_was_aborted(broker: str, topic: str, read: Read) -> None:
    producer = Producer({"bootstrap.servers": broker, "transactional.id": topic})
    producer.init_transactions(30)
    for value, commits in ((b"seen", True), (b"aborted", False)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        assert producer.flush(30) == 0
        (producer.commit_transaction if commits else producer.abort_transaction)(30)
    # Two records and the mark of each transaction.
    assert read(48, 54) == [b"48", b"49", b"seen"]


def test_what_never_comes_is_told_with_its_place(topic: str, read: Read) -> None:
    with pytest.raises(KafkaUnavailableError) as caught:
        read(45, 60)
    assert f"topic {topic}, partition 0 cannot be read at offset 50: nothing came for 3 s" in caught.value.message
