"""The topic of the dead letters on the real broker: each letter once, whatever is killed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from jobs.streaming.dead_letter_publisher.outbox import outbox_group
from jobs.streaming.dead_letter_publisher.topic import OutboxError
from tests.helpers.topics import create_topic
from tests.helpers.waiting import wait_for
from tests.integration.dead_letters import TABLE, Letters

pytestmark = pytest.mark.integration


@pytest.fixture
def letters(broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Letters]:
    """Makes a table and a topic of the test's own."""

    def make(**topic: Any) -> Letters:
        stream = re.sub(r"[^a-z0-9_]", "_", request.node.name.removeprefix("test_").lower())[:60]
        made = Letters(tmp_path / "letters", broker, stream, topic)
        made.claim(1)
        return made

    return make


def killed(one: Letters, step: str) -> None:
    process = one.process(f"{step}=kill")
    assert process.wait() == -signal.SIGKILL, process.said()
    assert f"step {step}: SIGKILL" in process.said()


def test_letters_in_the_order_of_their_batches(letters: Callable[..., Letters]) -> None:
    one = letters()
    expected = one.add(1, 0, [2, 5, 8]) + one.add(1, 1, [0, 3])
    assert one.publish() == 5
    assert one.publish() == 0
    one.claim(2)
    expected += one.add(1, 2, [11])  # recovered: of the driver before, committed by this one
    expected += one.add(2, 0, [1, 4])
    assert one.publish() == 3
    assert one.seen() == expected
    first = one.read()[0]
    assert (first.key, first.value, first.headers[:2]) == (b"k2", b"\x00\xff{2", [("trace", b"\x01"), ("trace", None)])
    assert first.timestamp == (1, 1_793_527_198_000)
    assert first.last("__connect.errors.connector.name") == one.stream
    assert first.last("__frazil.table") == TABLE
    # Timestamps that the topic refuses.
    one.add(2, 1, [3], timestamp=datetime(2199, 1, 1, tzinfo=UTC))
    one.add(2, 2, [6], timestamp=None)
    assert one.publish() == 2
    *_, future, none = one.read()
    assert future.last("__frazil.timestamp") == "7226582400000"
    assert "__frazil.timestamp" not in dict(none.headers)


@pytest.mark.parametrize("step", ["outbox_before_produce", "outbox_before_commit", "outbox_after_commit"])
def test_killed(letters: Callable[..., Letters], step: str) -> None:
    one = letters()
    expected = one.add(1, 0, range(0, 30, 3))
    killed(one, f"{step}")
    expected += one.add(1, 1, [31])
    killed(one, f"{step}")
    one.publish()
    expected += one.add(1, 2, [34])
    one.publish()
    assert one.publish() == 0
    assert sorted(one.seen()) == sorted(expected)
    uncommitted = one.seen(isolation="read_uncommitted")
    if step == "outbox_before_commit":
        assert len(uncommitted) > len(expected), "readers that do not ask for committed ones see aborted ones too"
    assert set(uncommitted) == set(expected)


def test_two_publishers_fence_each_other_and_publish_once(letters: Callable[..., Letters]) -> None:
    one = letters()
    expected = one.add(1, 0, range(4))
    first, second = one.outbox(), one.outbox()
    assert first.publish() == 4
    expected += one.add(1, 1, [4])
    assert second.publish() == 1
    expected += one.add(1, 2, [5])
    with pytest.raises(OutboxError, match="another process publishes the dead letters"):
        first.publish()
    assert first.publish() == 1
    one.add(1, 3, [6])
    with pytest.raises(OutboxError, match="another process"):
        second.publish()
    assert second.publish() == 1
    first.close()
    second.close()
    assert sorted(one.seen()) == sorted([*expected, ("payments", 0, 6)])


def test_a_driver_that_was_taken_over_publishes_nothing(letters: Callable[..., Letters]) -> None:
    one = letters()
    one.add(1, 0, [1])
    sleeper = one.outbox()
    assert sleeper.publish() == 1
    one.claim(2)
    expected = one.add(2, 0, [2])
    assert one.publish() == 1
    with pytest.raises(OutboxError):
        sleeper.publish()
    with pytest.raises(OutboxError, match="was taken over by a driver with epoch 2"):
        sleeper.publish()
    assert one.seen()[1:] == expected


def test_a_table_that_is_older_than_the_topic(letters: Callable[..., Letters]) -> None:
    one = letters(publish="new")
    one.add(1, 0, range(3))
    one.claim(2)
    # The driver opens, and its cluster is away until it has written letters and ended.
    unreached = one.outbox()
    unreached.close()
    one.add(2, 0, [7])
    one.claim(3)
    assert one.publish() == 1


def test_a_position_that_the_group_has_lost(letters: Callable[..., Letters]) -> None:
    one = letters(publish="all")
    one.add(1, 0, range(5))
    one.publish()
    admin = AdminClient({"bootstrap.servers": one.address})
    admin.delete_consumer_groups([outbox_group(one.stream)])[outbox_group(one.stream)].result(60)
    one.add(1, 1, [5])
    assert one.publish() == 1
    assert len(one.seen()) == 6


def test_tables_that_were_begun_anew_and_have_reached_the_epoch(letters: Callable[..., Letters]) -> None:
    one = letters()
    one.add(1, 7, range(3))
    assert one.publish() == 3
    one.catalog().drop_table(TABLE)
    one.claim(1)
    expected = one.add(1, 0, range(10, 12))
    assert one.outbox().count() == 2
    assert one.publish() == 2
    expected += one.add(1, 1, [12])
    assert one.publish() == 1
    assert one.publish() == 0
    assert one.seen()[3:] == expected


def test_a_letter_too_large_points_to_the_table(letters: Callable[..., Letters]) -> None:
    one = letters()
    create_topic(one.address, one.topic["name"], 1, {"max.message.bytes": "5000"})
    one.add(1, 0, [3], message="m" * 2000)
    one.add(1, 1, [6], message="m" * 3500)
    one.add(1, 2, [9], value=os.urandom(4500))
    one.add(1, 3, [12], value=os.urandom(100_000), key=os.urandom(50_000))
    assert one.publish() == 4
    traceless, cut, pointed, bare = one.read()
    trace = "__connect.errors.exception.stacktrace"
    assert trace not in dict(traceless.headers)
    assert traceless.last("__connect.errors.exception.message") == "m" * 2000
    assert cut.last("__connect.errors.exception.message") == "m" * 3500
    assert (pointed.key, pointed.value) == (b"k9", None)
    pointer = pointed.last("__frazil.pointer")
    assert pointer is not None
    assert json.loads(pointer) | {"table": TABLE, "offset": 9, "partition": 0} == json.loads(pointer)
    assert (bare.key, bare.value) == (None, None)


def test_a_topic_with_no_room_at_all_stops_the_letters_and_names_it(letters: Callable[..., Letters]) -> None:
    one = letters()
    create_topic(one.address, one.topic["name"], 1, {"max.message.bytes": "600"})
    one.add(1, 0, [3])
    with pytest.raises(OutboxError, match=r"takes 600 bytes.*payments-0 offset 3") as refused:
        one.publish()
    assert refused.value.lasting
    admin = AdminClient({"bootstrap.servers": one.address})
    entry = ConfigEntry("max.message.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, one.topic["name"], incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    wait_for(lambda: one.publish() == 1, "the letter, now that it fits")


def test_a_topic_that_is_missing(letters: Callable[..., Letters]) -> None:
    one = letters(create=False, replication_factor=None)
    one.add(1, 0, [3])
    with pytest.raises(OutboxError, match=f"topic {one.stream}.dead for the dead letters .* does not exist") as refused:
        one.publish()
    assert refused.value.lasting
    assert f"--create --topic {one.stream}.dead" in str(refused.value.fix)
    one.topic |= {"create": True, "replication_factor": 3, "partitions": 2}
    with pytest.raises(OutboxError, match=r"cannot be created with 2 partitions and replication factor 3") as refused:
        one.publish()
    assert refused.value.lasting
    one.topic["replication_factor"] = 1
    assert one.publish() == 1
    topics = AdminClient({"bootstrap.servers": one.address}).list_topics(timeout=60).topics
    assert len(topics[f"{one.stream}.dead"].partitions) == 2
