"""The real driver process, controlled as an operator controls it, and its JVM, stopped and killed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from jobs.base.system.processes import session_members
from jobs.clients.state_store.epochs import read_file
from jobs.proof.lookup.tags import tag_snapshot
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.scrape_target import target_file
from jobs.streaming.supervision.processes.actual import SILENT_SECONDS
from jobs.streaming.supervision.state.observation import observe
from jobs.tables.commit.history.stamp_history import history
from orchestration.alerts.alarms import ALARMS
from orchestration.cli.streams.status.collection import status_from_state
from orchestration.reconcile.assessment import Assessment, assess
from orchestration.reconcile.decide import Action
from orchestration.reconcile.stream_files import read_files
from resources.deployment import Deployment
from tests.helpers.modes import open_to_others
from tests.helpers.topics import create_topic
from tests.helpers.waiting import wait_for
from tests.integration.dead_letters import Letters
from tests.integration.pipeline import GOOD, TOMBSTONE, TRUNCATED, Pipeline
from tests.integration.record_places import looked_up

pytestmark = pytest.mark.integration
FAST = {"every": "1s"}


@pytest.fixture
def running(pipeline: Callable[..., Pipeline]) -> Iterator[Pipeline]:
    """A stream whose driver runs; whatever runs at the end of the test is ended."""
    made = pipeline()
    source = {"topics": [made.stream, later(made)], "group": f"watch-{made.stream}"}
    quiet = {"column": "created_at", "idle_after": "1s", "closes": "hour"}
    made.write_spec(trigger=FAST, source=source, errors=letters_to(made), event_time=quiet)
    made.produce({GOOD: 30, TRUNCATED: 3, TOMBSTONE: 2})
    done = made.control().start("the test begins", "tester")
    assert done.heartbeat is not None
    try:
        yield made
    finally:
        made.control().stop("the test ends", "tester")
    assert members(made) == []
    assert not target_file(made.settings(), made.stream).exists()


# Figures of suspended tables, open transactions and undeclared keys, of which this stream has none.
NOT_YET_KNOWN = {
    "frazil_parked_since_timestamp_seconds",
    "frazil_undecided_since_timestamp_seconds",
    "frazil_unknown_fields_total",
}


def queried_names() -> set[str]:
    """The names of metrics that the rules for Prometheus ask for."""
    return set(re.findall(r"\bfrazil_[a-z_]+", " ".join(alarm.query for alarm in ALARMS)))


def discovered(made: Pipeline) -> str:
    """Where Prometheus scrapes the driver, by its service-discovery file."""
    (entry,) = json.loads(target_file(made.settings(), made.stream).read_text())
    (target,) = entry["targets"]
    assert f"http://{target}/metrics" == made.beat().metrics_url
    return f"http://{target}/metrics"


def members(made: Pipeline) -> list[int]:
    return session_members(made.beat().pid)


def reaches(made: Pipeline, what: str, condition: Callable[[Heartbeat], bool], seconds: float = 90.0) -> None:
    wait_for(lambda: condition(made.beat()), what, seconds)


@pytest.mark.timeout(1800)
def test_the_life_of_a_driver(running: Pipeline) -> None:
    made = running
    made.wait_until_landed()
    reaches(made, "the beat that tells", lambda beat: beat.work.landed == 30)
    first = made.beat()
    assert (first.attempt, first.state, first.work.landed, first.work.dead) == (1, "running", 30, 3)
    reaches(made, "the lag to be known", lambda beat: beat.work.lag_at is not None and beat.work.total_lag == 0)
    # Its records are of months ago, or yet to be; while nothing comes its watermark follows the clock.
    ago = round(time.time() * 1000) - 600_000
    reaches(made, "the watermark to move on", lambda beat: (beat.work.watermark_ms or 0) >= ago - 60_000)
    with urllib.request.urlopen(discovered(made), timeout=60) as answer:
        metrics = answer.read().decode()
    assert f'frazil_records_landed_total{{stream="{made.stream}"}} 30.0' in metrics
    served = {sample.name for family in text_string_to_metric_families(metrics) for sample in family.samples}
    assert {name for name in queried_names() if name not in served} == NOT_YET_KNOWN
    with group_reader(made) as group:
        wait_for(lambda: group_positions(group, made.stream) == {0: 17, 1: 18}, "the consumer group to follow")

    # Paused, it stays alive and reads nothing; the lag is seen all the same.
    made.control().pause("looking at something", "tester")
    assert made.beat().state == "paused"
    made.produce({GOOD: 20})
    reaches(made, "the lag of a paused stream", lambda beat: beat.work.total_lag == 20)
    assert made.beat().work.landed == 30
    assert made.beat().pid == first.pid
    made.control().resume("seen it", "tester")
    made.wait_until_landed()
    assert made.beat().pid == first.pid

    # A topic that the file names and that comes later is read as soon as it is there.
    create_topic(made.address, later(made), 1)
    made.produce({GOOD: 5}, topic=later(made), partition=0)
    reaches(made, "the later topic's rows", lambda beat: beat.work.landed == 55)

    # A tag moves no head: the driver commits on, and the tag stays where it is.
    head = made.table().metadata.current_snapshot_id
    assert head is not None
    tag_snapshot(made.catalog(), made.table_name, "audit", head, keep=None, note="", by="tester")
    made.produce({GOOD: 10})
    reaches(made, "rows after the tag", lambda beat: beat.work.landed == 65)
    assert (made.beat().pid, made.table().metadata.refs["audit"].snapshot_id) == (first.pid, head)
    (found,) = looked_up(made, "--row", f"_kafka_topic = '{later(made)}' and _kafka_offset = 0")
    opened = found["landing"]["opened_by"]
    assert (opened["what"], opened["attempt"], opened["pid"]) == ("driver", 1, first.pid)
    assert (found["fate"], found["landing"]["generation"]) == ("row", first.generation)
    before = made.spec_file.read_text()

    # A changed file is rolled out after the batch, and the next snapshot says so.
    made.write_spec(trigger={"every": "2s"}, source={"topics": [made.stream, later(made)]}, errors=letters_to(made))
    rolled = made.control().roll("the file changed", "tester").heartbeat
    assert rolled is not None
    assert (rolled.attempt, rolled.state) == (2, "running")
    assert rolled.generation != first.generation
    stamp = history(made.table().metadata, made.stream).newest
    assert stamp is not None
    assert (stamp.generation, stamp.epoch) == (rolled.generation, rolled.epoch)
    # What made the rows of before is still known, also as a file.
    assert read_file(made.folder().store, found["landing"]["config_hash"], first.generation) == before
    assert read_file(made.folder().store, made.spec().config_hash, rolled.generation) == made.spec_file.read_text()
    assert session_members(first.pid) == []

    # The JVM hangs in the middle of work: the driver lives on and says so, and the supervisor names the command.
    jvm = jvm_of(rolled.pid)
    os.kill(jvm, signal.SIGSTOP)
    made.produce({GOOD: 40, TRUNCATED: 4})
    reaches(made, "the JVM's silence to be told", lambda beat: beat.work.unanswered_since is not None)
    assert made.beat().age() < SILENT_SECONDS, "its heart beats"
    assessed = assessed_now(made)
    assert assessed.decision.action is Action.ADOPT
    assert "has stalled since 20" in assessed.decision.sentence
    assert assessed.decision.fix == f"frazil restart {made.stream}"
    status = status_from_state(assessed.observed, made.spec())
    assert (status.state, status.fix) == ("stalled", f"frazil restart {made.stream}")

    # The JVM is killed: the driver says so and ends, and the next goes on at the stamps.
    os.kill(jvm, signal.SIGKILL)
    reaches(made, "the driver to end", lambda beat: beat.final)
    assert made.beat().state == "failed"
    assert "Spark's JVM has ended" in getattr(made.beat().error, "message", "")
    wait_for(lambda: members(made) == [], "the end of the driver")
    again = made.control().ensure_running("it died", "supervisor").heartbeat
    assert again is not None
    assert (again.attempt, again.state) == (3, "running")
    made.wait_until_landed()
    # What the killed JVM left, copies of its jars for one, is gone.
    assert len(list((made.settings().state / "spark" / "local").glob("*/"))) == 1
    # Spark's own files, which have the modes that its JVM gives them, lie in folders that nobody else enters.
    assert open_to_others(made.settings().state, but=("checkpoints", "local")) == []
    # Each letter is in its topic once, also over the end of the one and the start of the other.
    letters = Letters(made.home, made.address, made.stream)
    wait_for(lambda: len(letters.seen()) == 7, "all letters in their topic")
    assert Counter(letters.seen()) == made.dead()
    assert made.beat().unpublished_letters == 0

    # SIGTERM is a last word and a clean end.
    os.kill(made.beat().pid, signal.SIGTERM)
    reaches(made, "the last word", lambda beat: beat.state == "terminated")
    wait_for(lambda: members(made) == [], "the end of the driver")
    made.assert_exactly_once([made.stream, later(made)])


def assessed_now(made: Pipeline) -> Assessment:
    files = read_files(Deployment.at(made.home))
    return assess(observe(made.stream, files, made.settings()), time.time(), 0.0)


def letters_to(made: Pipeline) -> dict[str, Any]:
    topic = {"name": f"{made.stream}.dead", "create": True, "replication_factor": 1}
    return {"dead_letters": {"table": made.dead_name, "topic": topic}}


def later(made: Pipeline) -> str:
    return f"{made.stream}_later"


def jvm_of(session: int) -> int:
    found = [p for p in session_members(session) if b"SparkSubmit" in Path(f"/proc/{p}/cmdline").read_bytes()]
    # What it starts looks like a second one for an instant.
    return min(found)


@contextlib.contextmanager
def group_reader(made: Pipeline) -> Iterator[Consumer]:
    # Not the admin client's question for a group's offsets, which can crash the process on a young broker.
    reader = Consumer({"bootstrap.servers": made.address, "group.id": f"watch-{made.stream}"})
    try:
        yield reader
    finally:
        reader.close()


def group_positions(group: Consumer, topic: str) -> dict[int, int]:
    wanted = [TopicPartition(topic, number) for number in (0, 1)]
    return {at.partition: at.offset for at in group.committed(wanted, timeout=60)}
