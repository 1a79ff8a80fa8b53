"""A driver that runs where only its launcher sees it: what is concluded from its documents and from a look."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.local_store import LocalStore
from jobs.config.services.drivers import SparkSubmitSettings
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, State, write_heartbeat
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    write_launch,
    write_launched_process,
)
from jobs.streaming.supervision.launchers.launcher import Life, Look
from jobs.streaming.supervision.processes.actual import SUBMISSION_SECONDS, read_actual

POD = "lake/frazil-orders-4-abc123"


class Launcher:
    """Says the same of every driver, and counts how often it was asked."""

    def __init__(self, life: Life, reason: str = "") -> None:
        self.said, self.asked = Look(life, reason), 0

    def look(self, process: LaunchedProcess) -> Look:
        assert process.handle == POD
        self.asked += 1
        return self.said


def launched(folder: Path, *, noted: bool = True, at: float = 0.0) -> LocalStore:
    store = LocalStore(folder)
    launch = Launch(4, "g", "orders.yaml", 0, time.time() - at, launcher="kubernetes", handle=POD)
    write_launch(store, launch, "stream: orders")
    if noted:
        process = LaunchedProcess(4, "g", 0, "", "", "", time.time(), None, "kubernetes", POD)
        write_launched_process(store, process)
    return store


def beats(store: LocalStore, state: State = "running", age: float = 0.0, attempt: int = 4) -> None:
    now, clock = time.time() - age, boot_clock() - age
    who = ("orders", "g", attempt, 17, "1", "another boot", "node-7")
    write_heartbeat(store, Heartbeat(*who, now, state, now, clock, now))


def test_one_that_beats_is_not_asked_about(tmp_path: Path) -> None:
    store, launcher = launched(tmp_path), Launcher("unknown")
    beats(store)
    actual = read_actual(store, "orders", launcher.look)
    assert launcher.asked == 0, "a tick over many streams asks nobody"
    assert actual.driver is not None
    assert not actual.driver.local, "no signals are sent to its number"
    assert actual.driver.name == f"process 17 on node-7, pod {POD}"


@pytest.mark.parametrize("age", [20.0, 60.0])
def test_one_that_is_silent_and_has_ended_is_gone_at_once(tmp_path: Path, age: float) -> None:
    store, launcher = launched(tmp_path), Launcher("ended", "OOMKilled, exit status 137")
    beats(store, age=age)
    actual = read_actual(store, "orders", launcher.look)
    assert launcher.asked == 1
    assert actual.driver is None
    assert not actual.driver_lives
    assert actual.look is not None
    assert actual.look.reason == "OOMKilled, exit status 137"


def test_of_one_that_is_silent_while_nobody_knows_its_lease_decides(tmp_path: Path) -> None:
    store, launcher = launched(tmp_path), Launcher("unknown", "Kubernetes does not answer")
    beats(store, age=20.0)
    assert read_actual(store, "orders", launcher.look).driver is not None, "its heartbeat is not old enough"
    beats(store, age=60.0)
    assert read_actual(store, "orders", launcher.look).driver is None, "and it holds no lease"


def test_one_that_lives_and_neither_beats_nor_holds_its_lease_is_frozen(tmp_path: Path) -> None:
    store = launched(tmp_path)
    beats(store, age=60.0)
    driver = read_actual(store, "orders", Launcher("alive").look).driver
    assert driver is not None
    assert driver.frozen


def test_a_last_word_is_believed_without_asking(tmp_path: Path) -> None:
    store, launcher = launched(tmp_path), Launcher("alive")
    beats(store, "stopped", age=60.0)
    assert read_actual(store, "orders", launcher.look).driver is None
    assert launcher.asked == 0


@pytest.mark.parametrize("at", [1.0, 3600.0])
def test_one_that_waits_for_a_place_is_on_its_way_however_long(tmp_path: Path, at: float) -> None:
    store = launched(tmp_path, at=at)
    actual = read_actual(store, "orders", Launcher("alive", "Unschedulable").look)
    assert actual.starting
    assert actual.driver is not None
    assert actual.driver.heartbeat is None


@pytest.mark.parametrize(
    ("noted", "life", "at", "starting"),
    [
        (True, "ended", 1.0, True),  # so long it may still be noted by somebody else
        (True, "ended", 10.0, False),
        (True, "unknown", 10.0, True),
        (True, "unknown", 3600.0, True),  # it may wait for a place, and nobody can be asked
        (False, "ended", 10.0, True),  # it may be about to be made
        (False, "ended", 100.0, False),
        (False, "unknown", 10.0, True),
        (False, "unknown", 3600.0, True),
        (False, "alive", 3600.0, True),  # whoever made it could not say so
    ],
)
def test_a_launch_is_awaited_by_what_is_known_of_it(
    tmp_path: Path, noted: bool, life: Life, at: float, starting: bool
) -> None:
    store = launched(tmp_path, noted=noted, at=at)
    assert read_actual(store, "orders", Launcher(life).look).starting is starting


@pytest.mark.parametrize("at", [100.0, 310.0])
def test_a_submission_may_take_as_long_as_its_timeout_says_to_be_noted(tmp_path: Path, at: float) -> None:
    store = LocalStore(tmp_path)
    write_launch(store, Launch(4, "g", "orders.yaml", 0, time.time() - at, launcher="spark_submit"), "stream: orders")
    assert read_actual(store, "orders", Launcher("ended").look).starting is (at < SUBMISSION_SECONDS)
    assert SparkSubmitSettings(pages=["http://spark"]).timeout.total_seconds() < SUBMISSION_SECONDS


def test_documents_of_an_earlier_release_are_of_local_processes(tmp_path: Path) -> None:
    store = launched(tmp_path)
    for key in ("launch.json", "process.json"):
        document = msgspec.json.decode((tmp_path / key).read_bytes())
        for name in ("launcher", "handle", "problem"):
            document.pop(name, None)
        (tmp_path / key).write_bytes(msgspec.json.encode(document))
    actual = read_actual(store, "orders")
    assert actual.launch is not None
    assert actual.launch.launcher == "local"
    assert actual.launched_process is not None
    assert not actual.launched_process.remote
