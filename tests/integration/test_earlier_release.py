"""A deployment that an earlier release made and left, streams killed within a batch included, goes on under this one.

What it is, and how the next one is made: `earlier_release/make_deployment.py`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result

from jobs.catalog import connect_catalog
from jobs.kafka.metadata import KafkaLog
from jobs.local_broker.broker import LocalBroker
from jobs.state.local_store import LocalStore
from jobs.stream.drain import drain
from jobs.supervise.heartbeat import Heartbeat, read_heartbeat
from jobs.supervise.stream_control import StreamControl
from jobs.system.locks import exclusive
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.integration.earlier_release.contents import (
    ARCHIVE,
    CONNECT_SOURCE,
    DAYS,
    EXPECTED,
    HOME,
    LETTERS,
    LOCK,
    QUEUE,
    RETURNS,
    STREAMS,
    click,
    offsets_of,
    order,
    produce,
    produce_letters,
    refund,
    several,
)
from tests.integration.pipeline import ROOT
from tests.integration.topics import create_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

MADE = Path(__file__).parent / "earlier_release"
NEW_DAY = "clicks.20261104"
# What depends on when it is asked.
MOVING = {"silent_seconds", "complete_through", "seconds"}
Coordinates = tuple[str, int, int]


@pytest.fixture
def home() -> Iterator[Path]:
    """The deployment where it was made, with its broker up. Its tables name their files by absolute paths."""
    broker = LocalBroker(HOME / ".frazil/broker", detached=True)
    try:
        with exclusive(LOCK, deadline_seconds=200):
            # Of a run that was killed.
            _remove(broker)
            HOME.mkdir(mode=0o700)
            try:
                with tarfile.open(MADE / ARCHIVE) as archive:
                    # Python 3.11.3 and earlier know no filters.
                    archive.extraction_filter = getattr(tarfile, "tar_filter", None)
                    archive.extractall(HOME)
                with broker:
                    yield HOME
            finally:
                _remove(broker)
    except (PermissionError, FileExistsError, TimeoutError) as problem:
        pytest.fail(f"the deployment can be nowhere but in {HOME}, with {LOCK} beside it: {problem}")


def _remove(broker: LocalBroker) -> None:
    if HOME.exists():
        broker.stop()
        shutil.rmtree(HOME)


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What the release that made the deployment said of it."""
    return json.loads((MADE / EXPECTED).read_text())


def frazil(*arguments: str, expect: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(HOME), *arguments])
    assert result.exit_code == expect, result.output
    return result


def facts(*arguments: str) -> Any:
    return json.loads(frazil(*arguments, "--json").stdout)


def maintenance_plan() -> Any:
    """In a process of its own, because the command ends the Spark session of its process."""
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(HOME), "maintain", "--plan", "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)


def same(then: Any, now: Any, place: str = "$") -> Iterator[str]:
    """Where a document says something else than before, or does not say any more what it said."""
    if isinstance(then, dict) and isinstance(now, dict):
        yield from (f"{place}.{key} is gone" for key in then.keys() - now.keys())
        for key in then.keys() & now.keys() - MOVING:
            yield from same(then[key], now[key], f"{place}.{key}")
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for index, (before, after) in enumerate(zip(then, now, strict=True)):
            yield from same(before, after, f"{place}[{index}]")
    elif then != now:
        yield f"{place}: {then!r} is {now!r}"


def keys(document: Any, place: str = "$") -> set[str]:
    """The paths of all keys, those of lists' elements together."""
    if isinstance(document, dict):
        return {f"{place}.{key}" for key in document}.union(*(keys(v, f"{place}.{k}") for k, v in document.items()))
    if isinstance(document, list):
        return set[str]().union(*(keys(each, f"{place}[]") for each in document))
    return set()


def beat(stream: str) -> Heartbeat:
    found = read_heartbeat(LocalStore(HOME / ".frazil/state/streams" / stream))
    assert found is not None
    return found


def coordinates(topic: str, held: dict[str, str]) -> set[Coordinates]:
    """Offsets by partition, as `offsets_of` tells them, one by one."""
    ranges = [(int(at), each.split("-")) for at, text in held.items() for each in text.split()]
    return {(topic, at, offset) for at, ends in ranges for offset in range(int(ends[0]), int(ends[-1]) + 1)}


def rows(table: str, *columns: str) -> list[tuple[Any, ...]]:
    """A table's rows; with all columns if none is named."""
    with connect_catalog(Deployment.at(HOME).settings()) as catalog:
        found = catalog.load_table(table).scan(selected_fields=columns or ("*",)).to_arrow().to_pylist()
    return [tuple(row[name] for name in columns or row) for row in found]


def columns_of(table: str) -> list[str]:
    with connect_catalog(Deployment.at(HOME).settings()) as catalog:
        return [field.name for field in catalog.load_table(table).schema().fields]


@pytest.mark.timeout(400)
def test_a_deployment_of_an_earlier_release_goes_on(home: Path, expected: dict[str, Any], spark: SparkSession) -> None:
    before = expected["commands"]
    columns = columns_of("frazil.ledger")
    ledger = Counter(map(str, rows("frazil.ledger", *columns)))
    # Files, tables and topics are read as they were; nothing that a script may read has gone.
    for command in ("validate", "status", f"status {' '.join(STREAMS)}", *(f"letters {each}" for each in STREAMS)):
        assert list(same(before[command], facts(*command.split()))) == [], f"frazil {command}"
    for command in ("reset-offsets refunds --to earliest", "replay refunds --dry-run"):
        assert keys(before[command]) - keys(facts(*command.split())) == set(), f"frazil {command}"
    assert keys(before["maintain --plan"]) - keys(maintenance_plan()) == set()
    address, numbers = (home / ".frazil/broker/address").read_text(), iter(range(10_000, 20_000))
    assert {topic: offsets_of(address, topic) for topic in expected["records"]} == expected["records"]

    follow_the_killed_driver(address, numbers)
    finish_the_killed_replay(address, numbers, spark)
    finish_the_killed_import(address, numbers, spark)

    for stream, topics in (("orders", ["orders"]), ("refunds", ["refunds"]), ("clicks", [*DAYS[1:], NEW_DAY])):
        audit = facts("audit", stream, "--full")
        assert audit["verdict"] == "complete"
        assert keys(before.get(f"audit {stream} --full")) - keys(audit) == set()
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
        wait_for(lambda: len(read_topic(address, LETTERS)) == letters, "the letters in their topic")
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
    assert (taken["read"], taken["earlier"], taken["landed"], taken["dead"]) == (7, 6, 6, 1)


def drained(stream: str, spark: SparkSession) -> tuple[int, int, int]:
    """Drain a stream in this process; returns records read, landed and dead."""
    deployment = Deployment.at(HOME)
    settings = deployment.settings()
    counts = drain(deployment.stream(stream), settings, KafkaLog(settings.kafka), lambda: spark).counts
    return counts.read, counts.landed, counts.dead


def assert_exactly_once(stream: str, values: set[Coordinates]) -> None:
    """Each record with a value is a row or a letter, once; one whose letter came back is both."""
    spec = Deployment.at(HOME).stream(stream)
    landed = Counter(rows(spec.table.name, "_kafka_topic", "_kafka_partition", "_kafka_offset"))
    dead = rows(spec.dead_letter_table, "topic", "partition", "offset", "replay_snapshot_id")
    letters = Counter((topic, at, offset) for topic, at, offset, _ in dead)
    assert {*landed.values(), *letters.values()} == {1}
    assert landed.keys() & letters.keys() == {(topic, at, offset) for topic, at, offset, snapshot in dead if snapshot}
    assert landed.keys() | letters.keys() == values
