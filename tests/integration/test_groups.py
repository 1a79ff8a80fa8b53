"""Streams that share a driver: each by itself when one is stopped, rolled or fails, and all again when it is killed."""

from __future__ import annotations

import itertools
import os
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.launches import read_launch
from jobs.system.processes import session_members
from tests.helpers.waiting import wait_for
from tests.integration.driver_group import FAST, Group, driver_group
from tests.integration.pipeline import GOOD, Pipeline, payment
from tests.integration.topics import idempotent_producer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.fixture
def made(tmp_path: Path, broker: str) -> Iterator[Group]:
    with driver_group(tmp_path, broker) as group:
        yield group


def reaches(made: Pipeline, what: str, condition: Callable[[Heartbeat], bool], seconds: float = 90.0) -> None:
    wait_for(lambda: condition(made.beat()), f"{what}; it is {made.beat()}", seconds)


def test_each_by_itself_and_all_again(made: Group) -> None:
    one, two, three = made.streams
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
    metrics = urllib.request.urlopen(url, timeout=10).read().decode()
    for each in made.streams:
        assert f'frazil_records_landed_total{{stream="{each.stream}"}} 20.0' in metrics
    assert metrics.count("# HELP frazil_records_landed_total ") == 1
    for each in made.streams:
        own = (each.folder().root / "logs" / "driver.log").read_text()
        assert "batch 0: " in own
        assert all(other.stream not in own for other in made.streams if other is not each)

    # One is stopped, one rolled by its file; the third goes on with what it was at.
    one.control().stop("a test", "tester")
    two.write_spec(trigger={"every": "2s"})
    two.control().roll("its file has changed", "tester")
    assert [each.beat().state for each in made.streams] == ["stopped", "running", "running"]
    assert [each.beat().attempt for each in made.streams] == [1, 2, 1]
    assert made.process() == first
    made.produce()
    for each in (two, three):
        each.wait_until_landed()
    assert one.beat().work.landed == 20

    # One whose table it may not write ends with an error, by itself.
    one.control().start("a test", "tester")
    made.complete()
    catalog = three.catalog()
    catalog.rename_table(three.table_name, f"{three.table_name}_gone")
    three.produce({GOOD: 3})
    reaches(three, "the stream without a table to fail", lambda beat: beat.state == "failed")
    assert made.process() == first
    catalog.rename_table(f"{three.table_name}_gone", three.table_name)
    three.control().start("the table is back", "tester")
    made.produce()
    made.complete()

    # The driver is killed, wherever each is: its keeper starts one for all of them.
    made.produce()
    os.killpg(first.pid, signal.SIGKILL)
    wait_for(lambda: made.process().attempt == first.attempt + 1, "the next driver", 60)
    made.produce()
    made.complete()
    assert {each.beat().pid for each in made.streams} == {made.process().pid}
    assert session_members(first.pid) == []
    for each in made.streams:
        launch = read_launch(each.folder().store)
        assert launch is not None
        assert launch.kept == 1

    # Other settings: the first stream that is started under them has the driver replaced, and all move along.
    second = made.process()
    written = yaml.safe_load((made.home / "frazil.yaml").read_text()) | {"lease_ttl": "11s"}
    (made.home / "frazil.yaml").write_text(yaml.safe_dump(written))
    one.control().ensure_running("its settings have changed", "tester")
    third = made.process()
    assert third.attempt == second.attempt + 1
    made.produce()
    made.complete()
    assert {each.beat().pid for each in made.streams} == {third.pid}
    for each in made.streams:
        launch, beat = read_launch(each.folder().store), each.beat()
        assert launch is not None
        assert (launch.attempt, launch.generation) == (beat.attempt, beat.generation)


def test_a_stream_of_which_drivers_die_is_left_out(made: Group) -> None:
    one, two, bad = made.streams
    made.produce()
    made.start()
    made.complete()
    before = made.process().attempt
    bad.produce({GOOD: 5})

    def dies_of_it(attempt: int) -> bool:
        """Whether it had something at hand, and the driver was killed for it."""
        beat = bad.beat()
        if beat.attempt == attempt and not beat.final and (beat.state == "starting" or beat.work.busy_since):
            os.killpg(beat.pid, signal.SIGKILL)
            return True
        return False

    attempt = bad.beat().attempt
    # A driver that is killed at a moment when it is at nothing is no death of this stream.
    os.killpg(made.process().pid, signal.SIGKILL)
    wait_for(lambda: dies_of_it(attempt + 1), "the first death of it", 90)
    wait_for(lambda: dies_of_it(attempt + 2), "the second death of it", 90)
    reaches(bad, "the stream to be left out", lambda beat: beat.state == "failed")
    error = bad.beat().error
    assert error is not None
    assert error.kind == "operator"
    assert "died 2 times in a row" in error.message
    assert "group: own" in (error.fix or "")
    for each in (one, two):
        each.produce({GOOD: 5})
        each.wait_until_landed()
        each.assert_exactly_once()
    assert made.process().attempt == before + 3
    # Its operator has it tried again.
    bad.control().start("it is mended", "tester")
    made.complete()
    assert made.process().attempt == before + 3


def test_a_backlog_does_not_keep_its_neighbours_from_landing(made: Group) -> None:
    """Its batches take every core, one after the other; a neighbour waits for the tasks at hand, not for their end."""
    large, *small = made.streams
    large.write_spec(trigger=FAST, source={"topics": [large.stream], "max_records_per_batch": 40_000})
    made.produce()
    made.start()
    for each in made.streams:
        each.wait_until_landed()
    before = len(large.table().metadata.snapshots)
    large.control().pause("a backlog is made", "tester")
    producer, total = idempotent_producer(large.address, large.stream), 300_000
    for number in range(total):
        producer.produce(large.stream, value=payment(number, GOOD), partition=number % large.partitions)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0

    def all_landed() -> bool:
        for each in small:
            producer.produce(each.stream, value=payment(1, GOOD), partition=0)
        assert producer.flush(30) == 0
        return large.beat().work.landed >= total

    large.control().resume("it is there", "tester")
    wait_for(all_landed, "the backlog to land", 240)
    times = {
        each.stream: [snapshot.timestamp_ms / 1000 for snapshot in each.table().metadata.snapshots]
        for each in made.streams
    }
    batches = times[large.stream][before:]
    longest = max(after - at for at, after in itertools.pairwise(batches))
    for each in small:
        inside = [at for at in times[each.stream] if batches[0] < at < batches[-1]]
        waits = [after - at for at, after in itertools.pairwise([batches[0], *inside, batches[-1]])]
        assert max(waits) < 2 * longest + 5, f"{waits} beside batches of {longest:.1f} s at most"
