"""Streams that share a driver: each by itself when one is stopped, rolled or fails, and all again when it is killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from jobs.spec.settings import Settings
from jobs.supervise.groups import DriverGroup
from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.launches import LaunchedProcess, read_launch, read_launched_process
from jobs.system.processes import session_members
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
FAST = {"every": "1s"}


class Group:
    """Streams of one deployment, in one group."""

    def __init__(self, home: Path, address: str, names: list[str]) -> None:
        self.home: Path = home
        self.streams: list[Pipeline] = [Pipeline(home, address, name, lease_ttl="10s") for name in names]
        written = yaml.safe_load((home / "frazil.yaml").read_text()) | {"groups": {"default": "small"}}
        (home / "frazil.yaml").write_text(yaml.safe_dump(written))
        for each in self.streams:
            each.create_topic()
            each.write_spec(trigger=FAST)

    @property
    def settings(self) -> Settings:
        return self.streams[0].settings()

    @property
    def group(self) -> DriverGroup:
        return DriverGroup.of(self.settings, "small")

    def start(self) -> None:
        for each in self.streams:
            each.control().start("the test begins", "tester")

    def produce(self) -> None:
        for each in self.streams:
            each.produce({GOOD: 20, TRUNCATED: 2})

    def process(self) -> LaunchedProcess:
        found = read_launched_process(self.group.folder.store)
        assert found is not None
        return found

    def complete(self) -> None:
        for each in self.streams:
            each.wait_until_landed()
            each.assert_exactly_once()

    def log(self) -> str:
        return (self.group.folder.root / "logs" / "driver.log").read_text()


@pytest.fixture
def made(tmp_path: Path, broker: str) -> Iterator[Group]:
    word = re.sub(r"[^a-z0-9]", "", tmp_path.name)[-12:]
    group = Group(tmp_path, broker, [f"{name}{word}" for name in ("a", "b", "c")])
    try:
        yield group
    finally:
        for each in group.streams:
            with contextlib.suppress(Exception):
                each.control().stop("the test ends", "tester")
        with contextlib.suppress(FileNotFoundError):
            last = group.process()
            wait_for(lambda: not session_members(last.pid), "the group's driver to end, as it has no stream left", 60)


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
