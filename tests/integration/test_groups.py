"""Streams that share a driver: each by itself when one is stopped, rolled or fails, and all again when it is killed.

One test, as each start of a driver is a JVM.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import yaml

from jobs.base.system.processes import session_members
from jobs.clients.state_store.stream_folder import state_store
from jobs.clients.state_store.table_health import TableHealth, table_part, write_health
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.launches import read_launch
from tests.helpers.topics import idempotent_producer
from tests.helpers.waiting import wait_for
from tests.integration.driver_group import FAST, Group, driver_group, landed_once
from tests.integration.pipeline import GOOD, Pipeline, payment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]


@pytest.fixture
def made(tmp_path: Path, broker: str) -> Iterator[Group]:
    with driver_group(tmp_path, broker) as group:
        yield group


def reaches(made: Pipeline, what: str, condition: Callable[[Heartbeat], bool], seconds: float = 90.0) -> None:
    wait_for(lambda: condition(made.beat()), f"{what}; it is {made.beat()}", seconds)


def test_each_by_itself_all_again_and_none_before_another(made: Group) -> None:
    one, two, bad = made.streams
    one.write_spec(trigger=FAST, source={"topics": [one.stream], "max_records_per_batch": 10_000})
    made.produce()
    made.start()
    made.complete()
    first = made.process()
    beats = [each.beat() for each in made.streams]
    assert {beat.pid for beat in beats} == {first.pid}
    assert {beat.group for beat in beats} == {"small"}
    # One JVM, whose log and metrics are the group's; each stream has a log of its own.
    assert not (one.folder().root / "logs" / "spark.log").exists()
    (url,) = {beat.metrics_url for beat in beats}
    assert url
    metrics = urllib.request.urlopen(url, timeout=60).read().decode()
    for each in made.streams:
        assert f'frazil_records_landed_total{{stream="{each.stream}"}} 20.0' in metrics
    assert metrics.count("# HELP frazil_records_landed_total ") == 1
    for each in made.streams:
        assert "batch 0: " in log(each)
        assert all(other.stream not in log(each) for other in made.streams if other is not each)

    # One is stopped, one rolled by its file; the third goes on with what it was at.
    one.control().stop("a test", "tester")
    health = table_part(state_store(two.settings()), str(two.table().metadata.table_uuid))
    write_health(health, TableHealth(12, time.time()))
    two.write_spec(trigger={"every": "1s", "while_red": "2s"})
    two.control().roll("its file has changed", "tester")
    assert [each.beat().state for each in made.streams] == ["stopped", "running", "running"]
    assert [each.beat().attempt for each in made.streams] == [1, 2, 1]
    assert made.process() == first
    made.produce()
    for each in (two, bad):
        each.wait_until_landed()
    assert one.beat().work.landed == 20
    assert "health of 12 of 100; it lands less often" in log(two)

    # One whose table it may not write ends with an error, by itself.
    one.control().start("a test", "tester")
    made.complete()
    catalog = bad.catalog()
    catalog.rename_table(bad.table_name, f"{bad.table_name}_gone")
    bad.produce({GOOD: 3})
    reaches(bad, "the stream without a table to fail", lambda beat: beat.state == "failed")
    assert made.process() == first
    catalog.rename_table(f"{bad.table_name}_gone", bad.table_name)
    bad.control().start("the table is back", "tester")
    made.produce()
    made.complete()

    # Other settings: the first stream that is started under them has the driver replaced, and all move along.
    written = yaml.safe_load((made.home / "frazil.yaml").read_text()) | {"lease_ttl": "11s"}
    (made.home / "frazil.yaml").write_text(yaml.safe_dump(written))
    attempt = bad.beat().attempt
    one.control().ensure_running("its settings have changed", "tester")
    second = made.process()
    assert second.attempt == first.attempt + 1

    # The driver is killed with a batch of one stream at hand, and again: its keeper starts one for all of them, and
    # the next one leaves that stream out.
    wait_for(lambda: dies_of(bad, attempt + 1), "the first death of it")
    wait_for(lambda: dies_of(bad, attempt + 2), "the second death of it")
    reaches(bad, "the stream to be left out", lambda beat: beat.state == "failed")
    error = bad.beat().error
    assert error is not None
    assert error.kind == "operator"
    assert "died 2 times in a row" in error.message
    assert "group: own" in (error.fix or "")
    for each in (one, two):
        each.produce({GOOD: 5})
        landed_once(each)
    last = made.process()
    assert last.attempt == second.attempt + 2
    assert session_members(first.pid) == session_members(second.pid) == []
    # Its operator has it tried again.
    bad.control().start("it is mended", "tester")
    made.complete()
    assert made.process() == last
    assert {each.beat().pid for each in made.streams} == {last.pid}
    for each in made.streams:
        launch, beat = read_launch(each.folder().store), each.beat()
        assert launch is not None
        assert launch.kept >= 1
        assert (launch.attempt, launch.generation) == (beat.attempt, beat.generation)

    assert_a_backlog_keeps_nobody_from_landing(one, [two, bad])


def log(each: Pipeline) -> str:
    return (each.folder().root / "logs" / "driver.log").read_text()


def dies_of(bad: Pipeline, attempt: int) -> bool:
    """Whether this attempt of the stream had something at hand, and the driver was killed for it."""
    bad.produce({GOOD: 5})
    beat = bad.beat()
    if beat.attempt == attempt and not beat.final and (beat.state == "starting" or beat.work.busy_since):
        os.killpg(beat.pid, signal.SIGKILL)
        return True
    return False


def assert_a_backlog_keeps_nobody_from_landing(large: Pipeline, small: Sequence[Pipeline]) -> None:
    """Its batches take every core, one after the other; a neighbour waits for the tasks at hand, not for their end."""
    before = len(large.table().metadata.snapshots)
    large.control().pause("a backlog is made", "tester")
    producer, total = idempotent_producer(large.address, large.stream), 60_000
    wanted = large.beat().work.landed + total
    for number in range(total):
        producer.produce(large.stream, value=payment(number, GOOD), partition=number % large.partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0

    def all_landed() -> bool:
        for each in small:
            producer.produce(each.stream, value=payment(1, GOOD), partition=0)
        assert producer.flush(120) == 0
        return large.beat().work.landed >= wanted

    large.control().resume("it is there", "tester")
    wait_for(all_landed, "the backlog to land", 240)
    times = {
        each.stream: [snapshot.timestamp_ms / 1000 for snapshot in each.table().metadata.snapshots]
        for each in (large, *small)
    }
    batches = times[large.stream][before:]
    longest = max(after - at for at, after in itertools.pairwise(batches))
    for each in small:
        inside = [at for at in times[each.stream] if batches[0] < at < batches[-1]]
        waits = [after - at for at, after in itertools.pairwise([batches[0], *inside, batches[-1]])]
        assert inside, f"nothing landed beside batches at {batches}"
        assert max(waits) < 2 * longest + 5, f"{waits} beside batches of {longest:.1f} s at most"
