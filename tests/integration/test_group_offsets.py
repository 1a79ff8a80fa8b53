"""Positions as a consumer group's offsets, on the real broker."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from jobs.clients.kafka.group_offsets import COORDINATOR_NOT_READY, GroupOffsets
from jobs.config.settings.settings import KafkaSettings
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.topics import create_topic
from tests.helpers.waiting import wait_for

pytestmark = pytest.mark.integration

TOPIC = "group-offsets"
P0, P1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture(scope="module")
def address(broker: str) -> str:
    create_topic(broker, TOPIC, 2)
    return broker


@pytest.fixture
def offsets(address: str, request: pytest.FixtureRequest) -> Iterator[GroupOffsets]:
    made = GroupOffsets(KafkaSettings(bootstrap_servers=address), request.node.name)
    yield made
    made.stop()


def committed(address: str, group: str) -> dict[TopicPartition, int]:
    """What the group has committed.

    A consumer asks, since the admin client of librdkafka crashes when it asks a coordinator that is still loading.
    """
    consumer = Consumer({"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False})
    try:
        found = consumer.committed([ClientPartition(at.topic, at.partition) for at in (P0, P1)], timeout=60)
    except KafkaException as problem:
        # The first group of a broker waits for its coordinator.
        if problem.args[0].code() not in COORDINATOR_NOT_READY:
            raise
        return {}
    finally:
        consumer.close()
    return {TopicPartition(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def test_the_group_stands_where_the_stream_stands(
    address: str, offsets: GroupOffsets, request: pytest.FixtureRequest
) -> None:
    group = request.node.name
    for position in range(100):
        offsets.publish({P0: position, P1: position * 2})
    wait_for(lambda: committed(address, group) == {P0: 99, P1: 198}, "the newest positions")
    offsets.publish({P0: 120, P1: 3})
    offsets.stop()
    assert committed(address, group) == {P0: 120, P1: 3}, "what waits is committed at the end, backwards too"


def test_a_group_in_use_is_told_once_and_followed_when_it_is_free(
    address: str, offsets: GroupOffsets, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    group = request.node.name
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.subscribe([TOPIC])
    wait_for(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the consumer's assignment")
    for position in (5, 6, 7):
        offsets.publish({P0: position})
        wait_for(lambda: f"group {group} does not follow the stream: the group has members" in caplog.text, "a word")
    consumer.close()
    offsets.publish({P0: 8})
    wait_for(lambda: f"consumer group {group} follows the stream again" in caplog.text, "the group to follow")
    assert committed(address, group)[P0] == 8
    assert caplog.text.count("does not follow") == 1


def test_a_topic_that_is_gone_is_told_and_the_others_are_followed(
    address: str, offsets: GroupOffsets, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    offsets.publish({P0: 4, TopicPartition("never-was", 0): 1})
    wait_for(lambda: "never-was-0: " in caplog.text, "a word about the topic")
    assert committed(address, request.node.name)[P0] == 4


def test_a_dead_broker_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    before = set(threading.enumerate())
    nowhere = KafkaSettings(bootstrap_servers="127.0.0.1:1", request_timeout=timedelta(seconds=1))
    offsets = GroupOffsets(nowhere, "nobody")
    began = time.monotonic()
    for position in range(1_000):
        offsets.publish({P0: position})
    assert time.monotonic() - began < 300, "a second each, if it waited"
    began = time.monotonic()
    offsets.stop()
    assert time.monotonic() - began < 100
    wait_for(lambda: set(threading.enumerate()) <= before, "the end of its thread, when its request has timed out")
    assert caplog.text.count("consumer group nobody does not follow the stream: ") == 1
