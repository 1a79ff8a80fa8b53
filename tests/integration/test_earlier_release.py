"""A deployment that an earlier release made and left, streams killed within a batch included, goes on under this one.

What it is, and how the next one is made: `earlier_release/make_deployment.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from resources.deployment import Deployment
from tests.helpers.topics import create_topic, read_topic
from tests.helpers.waiting import wait_for
from tests.integration.archived_deployment import ArchivedDeployment, differences, key_paths
from tests.integration.deployment_records import Coordinates, coordinates, offsets_of, produce, several
from tests.integration.earlier_release.contents import (
    CONNECT_SOURCE,
    DAYS,
    HOME,
    LETTERS,
    LOCK,
    QUEUE,
    RETURNS,
    STREAMS,
    click,
    order,
    produce_letters,
    refund,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

DEPLOYMENT = ArchivedDeployment(Path(__file__).parent / "earlier_release", HOME, LOCK)
frazil, facts, rows, drained = DEPLOYMENT.frazil, DEPLOYMENT.facts, DEPLOYMENT.rows, DEPLOYMENT.run_stream
NEW_DAY = "clicks.20261104"


@pytest.fixture
def home() -> Iterator[Path]:
    """The deployment where it was made, with its broker up."""
    with DEPLOYMENT.unpacked() as home:
        yield home


# That release named a command though no record waited.
NO_RUN = ".next: 'frazil run refunds' is None"


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What the release that made the deployment said of it."""
    return DEPLOYMENT.expected()


def beat(stream: str) -> Heartbeat:
    found = read_heartbeat(LocalStore(HOME / ".frazil/state/streams" / stream))
    assert found is not None
    return found


@pytest.mark.timeout(1200)
def test_a_deployment_of_an_earlier_release_goes_on(home: Path, expected: dict[str, Any], spark: SparkSession) -> None:
    before = expected["commands"]
    columns = DEPLOYMENT.columns_of("frazil.ledger")
    ledger = Counter(map(str, rows("frazil.ledger", *columns)))
    # Files, tables and topics are read as they were; nothing that a script may read has gone.
    for command in ("validate", "status", f"status {' '.join(STREAMS)}", *(f"letters {each}" for each in STREAMS)):
        found = [each for each in differences(before[command], facts(*command.split())) if not each.endswith(NO_RUN)]
        assert found == [], f"frazil {command}"
    for command in ("reset-offsets refunds --to earliest", "replay refunds --dry-run"):
        assert key_paths(before[command]) - key_paths(facts(*command.split())) == set(), f"frazil {command}"
    assert key_paths(before["maintain --plan"]) - key_paths(DEPLOYMENT.facts_of_process("maintain", "--plan")) == set()
    address, numbers = (home / ".frazil/broker/address").read_text(), iter(range(10_000, 20_000))
    assert {topic: offsets_of(address, topic) for topic in expected["records"]} == expected["records"]

    follow_the_killed_driver(address, numbers)
    finish_the_killed_replay(address, numbers, spark)
    finish_the_killed_import(address, numbers, spark)

    for stream, topics in (("orders", ["orders"]), ("refunds", ["refunds"]), ("clicks", [*DAYS[1:], NEW_DAY])):
        audit = facts("audit", stream, "--full")
        assert audit["verdict"] == "complete"
        assert key_paths(before.get(f"audit {stream} --full")) - key_paths(audit) == set()
        values = [coordinates(topic, offsets_of(address, topic)["values"]) for topic in topics]
        if stream == "clicks":
            values.append(coordinates(DAYS[0], expected["gone"][DAYS[0]]["values"]))
            values.append(coordinates(CONNECT_SOURCE, {"0": "0-12"}))
        passed = {(t, at, each) for t, at, start, end in expected["passed"] for each in range(start, end)}
        assert_exactly_once(stream, set[Coordinates]().union(*values) - passed)
    # The ledger may have got columns since; those that it had say what they said.
    now = Counter(map(str, rows("frazil.ledger", *columns)))
    assert (ledger - now, len(now) > len(ledger) > 0) == ({}, True)


def follow_the_killed_driver(address: str, numbers: Iterator[int]) -> None:
    """A driver completes what the pending record has, under the same configuration, and goes on."""
    control, killed = StreamControl(HOME, None, "orders"), beat("orders")
    control.ensure_running("it died", "supervisor")
    try:
        produce(address, "orders", [*several(order, numbers, 30), *several(order, numbers, 2, amount=None)])
        wait_for(lambda: (beat("orders").work.landed, beat("orders").work.dead) == (30, 2), "the records to land")
        letters = sum(each["letters"] for each in facts("letters", "orders")["letters"])
        wait_for(lambda: len(read_topic(address, LETTERS)) == letters, "the dead letters in their topic")
    finally:
        control.stop("the test ends", "tester")
    now = beat("orders")
    assert (now.state, now.attempt, now.generation) == ("stopped", killed.attempt + 1, killed.generation)
    assert now.epoch > killed.epoch
    assert now.work.recovered == 1
    # What had gone to another topic is known to have.
    there = offsets_of(address, RETURNS)
    assert facts("replay", "orders", "--reason", "none", "--to-topic", RETURNS)["recovered"] == 1
    assert offsets_of(address, RETURNS) == there


def finish_the_killed_replay(address: str, numbers: Iterator[int], spark: SparkSession) -> None:
    """A replay tells the letters what they were not told, and others replay what is left."""
    produce(address, "refunds", [*several(refund, numbers, 10), *several(refund, numbers, 2, at=1793527200000)])
    assert drained("refunds", spark) == (12, 10, 2)
    killed = facts("replay", "refunds", "--correction", str(HOME / "ignore.yaml"), "--reason", "unknown_field")
    assert killed["selected"] == 0
    schema = STREAMS["refunds"]["decode"]["schema"].replace("at timestamptz", "at timestamptz as epoch_ms")
    (HOME / "epoch.yaml").write_text(yaml.safe_dump({"decode": {"schema": schema}}))
    result = facts("replay", "refunds", "--correction", str(HOME / "epoch.yaml"), "--reason", "wrong_type")
    assert (result["selected"], result["replayed"]) == (8, 8)


def finish_the_killed_import(address: str, numbers: Iterator[int], spark: SparkSession) -> None:
    """What an operator had stopped is landed once he lets it, and the rest of the queue is taken."""
    refused = frazil("run", "clicks", expect=1).output
    assert "stream clicks is stopped by operator@earlier-host: until Monday." in refused
    StreamControl(HOME, None, "clicks").resume("it is Monday", "tester")
    create_topic(address, NEW_DAY, 1)
    produce(address, NEW_DAY, several(click, numbers, 10), partitions=1)
    assert drained("clicks", spark) == (10, 10, 0)
    produce_letters(address, 12, several(click, numbers, 1))
    taken = facts("replay", "clicks", "--from-topic", QUEUE)
    assert taken["read"] <= 7 and taken["landed"] + taken["dead"] >= 1


def assert_exactly_once(stream: str, values: set[Coordinates]) -> None:
    """Each record with a value is a row or a letter, once; one whose letter came back is both."""
    spec = Deployment.at(HOME).stream(stream)
    landed = Counter(rows(spec.table.name, "_kafka_topic", "_kafka_partition", "_kafka_offset"))
    dead = rows(spec.dead_letter_table, "topic", "partition", "offset", "replay_snapshot_id")
    letters = Counter((topic, at, offset) for topic, at, offset, _ in dead)
    assert {*landed.values(), *letters.values()} == {1}
    assert landed.keys() & letters.keys() == {(topic, at, offset) for topic, at, offset, snapshot in dead if snapshot}
    assert landed.keys() | letters.keys() == values
