"""A stream that its group's driver carries: who counts as its driver, and how its end is told."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.boot import boot_clock, boot_id
from jobs.base.system.processes import start_time
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.settings.settings import load_settings
from jobs.streaming.supervision.documents.heartbeat import (
    FINAL,
    Heartbeat,
    State,
    write_heartbeat,
)
from jobs.streaming.supervision.documents.keeper_record import write_keeper
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    write_launch,
    write_launched_process,
)
from jobs.streaming.supervision.launchers.local_process import LocalProcesses
from jobs.streaming.supervision.processes.actual import ActualState, Driver, read_actual
from jobs.streaming.supervision.processes.groups import DriverGroup, group_command
from jobs.streaming.supervision.processes.launcher import LaunchedDriver
from jobs.streaming.supervision.processes.termination import Timeouts, end_in_group
from jobs.streaming.supervision.state.desired import read_stream_files
from jobs.streaming.supervision.state.observation import observe

STATES: tuple[State, ...] = get_args(State)
ME = (os.getpid(), str(start_time(os.getpid())))
DEAD = (2**22 - 7, "1")


def launched(folder: Path, group: str | None, attempt: int = 4, process: tuple[int, str] = ME) -> LocalStore:
    store = LocalStore(folder)
    write_launch(store, Launch(attempt, "a", "s.yaml", 0, time.time(), group=group), "stream: s")
    note = LaunchedProcess(attempt, "a", *process, boot_id(), socket.gethostname(), time.time(), group)
    write_launched_process(store, note)
    return store


def process(of: tuple[int, str]) -> LaunchedProcess:
    return LaunchedProcess(4, "a", *of, boot_id(), socket.gethostname(), time.time(), "small")


def says(store: LocalStore, state: State, group: str | None, attempt: int = 4, process: tuple[int, str] = ME) -> None:
    now = time.time()
    pid, started = process
    who = ("s", "a", attempt, pid, started, boot_id(), socket.gethostname())
    write_heartbeat(store, Heartbeat(*who, now, state, now, boot_clock(), now, group=group))


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("noted", [True, False])
def test_its_driver_is_gone_with_its_last_word_though_the_process_lives(
    tmp_path: Path, state: State, noted: bool
) -> None:
    store = launched(tmp_path, "small")
    says(store, state, "small")
    if not noted:
        (tmp_path / "process.json").unlink()
    driver = read_actual(store, "s").driver
    if state in FINAL:
        assert driver is None
    else:
        assert driver is not None
        assert (driver.pid, driver.group, driver.attempt) == (ME[0], "small", 4)
    # One of its own is there until its process has ended.
    says(store, state, None)
    if noted:
        launched(tmp_path, None)
    assert read_actual(store, "s").driver is not None


def test_a_launch_that_its_group_has_not_begun_is_driven(tmp_path: Path) -> None:
    store = launched(tmp_path, "small", attempt=5)
    says(store, "stopped", "small", attempt=4)
    driver = read_actual(store, "s").driver
    assert driver is not None
    assert (driver.attempt, driver.heartbeat) == (5, None)
    launched(tmp_path, "small", attempt=5, process=DEAD)
    assert read_actual(store, "s").driver is None


def test_documents_of_an_earlier_release_name_no_group(tmp_path: Path) -> None:
    store = launched(tmp_path, "small")
    says(store, "running", "small")
    for key in ("launch.json", "process.json", "heartbeat.json"):
        document = msgspec.json.decode((tmp_path / key).read_bytes())
        del document["group"]
        (tmp_path / key).write_bytes(msgspec.json.encode(document))
    actual = read_actual(store, "s")
    assert actual.launch is not None
    assert actual.launch.group is None
    assert actual.driver is not None
    assert actual.driver.group is None


def test_a_launched_stream_lives_until_its_last_word(tmp_path: Path) -> None:
    store = launched(tmp_path, "small")
    launching = LaunchedDriver(StreamFolder(tmp_path, store), "s", 4, process(ME), LocalProcesses(), tmp_path / "group")
    assert launching.lives()
    assert launching.output == tmp_path / "group" / "logs" / "driver.out"
    says(store, "running", "small")
    assert launching.lives()
    says(store, "failed", "small")
    assert not launching.lives()
    assert not launching.died_silently()
    assert not LaunchedDriver(StreamFolder(tmp_path, store), "s", 4, process(DEAD), LocalProcesses(), tmp_path).lives()


def test_a_stream_without_a_driver_is_seen_with_the_pause_of_its_groups_keeper(tmp_path: Path) -> None:
    settings = load_settings(None, home=tmp_path)
    stream, group = settings.state / "streams" / "s", DriverGroup.of(settings, "small")

    def seen() -> ActualState:
        return observe("s", read_stream_files(tmp_path / "streams"), settings).actual

    own = launched(stream, "small", process=DEAD)
    says(own, "running", "small", process=DEAD)
    assert (seen().keeper, seen().kept) == (None, False), "nothing is known of its group"
    of_group = launched(group.folder.root, None, attempt=7, process=DEAD)
    says(of_group, "running", None, attempt=7, process=DEAD)
    starts = seen().group_starts_in
    assert starts is not None and -5 < starts <= 0, "its first death: at once"
    assert not seen().kept
    write_keeper(of_group, 7, 40.0)
    assert (seen().keeper, seen().kept) == (ME[0], True)
    starts = seen().group_starts_in
    assert starts is not None and 35 < starts <= 40
    # It has launched another, which has not taken the stream up yet.
    launched(group.folder.root, None, attempt=8)
    write_keeper(of_group, 8)
    starts = seen().group_starts_in
    assert starts is not None and -5 < starts <= 0
    assert seen().kept
    # It was the keeper of an earlier driver, and has nothing more to do.
    write_keeper(of_group, 7)
    assert seen().keeper is None
    # One whose driver lives asks nobody.
    launched(stream, "small")
    assert (seen().keeper, seen().group_starts_in) == (None, None)


def test_the_pause_of_a_group_without_a_keeper_is_seen(tmp_path: Path) -> None:
    settings = load_settings(None, home=tmp_path)
    group, own = DriverGroup.of(settings, "small"), settings.state / "streams" / "s"
    launched(own, "small", process=DEAD)
    of_group = launched(group.folder.root, None, attempt=7, process=DEAD)
    write_launch(of_group, Launch(7, "a", str(tmp_path), 3, time.time()), "")
    says(of_group, "starting", None, attempt=7, process=DEAD)
    starts = observe("s", read_stream_files(tmp_path / "streams"), settings).actual.group_starts_in
    assert starts is not None and 20 < starts <= 40, "the fourth failure in a row"


def test_the_pause_after_a_driver_without_a_beat_counts_from_its_launch(tmp_path: Path) -> None:
    """The newest beat is an earlier driver's, of ten minutes ago; the one since then died before its first."""
    settings = load_settings(None, home=tmp_path)
    group = DriverGroup.of(settings, "small")
    of_group = launched(group.folder.root, None, attempt=7, process=DEAD)
    write_launch(of_group, Launch(7, "a", str(tmp_path), 3, time.time()), "")
    now = time.time() - 600
    who = ("s", "a", 6, *DEAD, boot_id(), socket.gethostname())
    write_heartbeat(of_group, Heartbeat(*who, now, "running", now, boot_clock() - 600, now))
    assert 20 < group.next_start().seconds <= 40, "the fourth failure in a row"


def test_the_end_of_a_stream_is_awaited_and_that_of_its_process_is_not() -> None:
    driver = Driver(4, "a", *ME, "here", True, None, group="small")
    found: list[Driver | None] = [driver]
    threading.Timer(0.2, lambda: found.append(None)).start()
    assert end_in_group("s", driver, Timeouts(grace_seconds=30), lambda: found[-1]) == "ended after its batch"
    later = Driver(5, "a", *ME, "here", True, None, group="small")
    assert end_in_group("s", driver, Timeouts(grace_seconds=30), lambda: later) == "ended after its batch"
    frozen = Driver(4, "a", *ME, "here", True, None, frozen=True, group="small")
    assert end_in_group("s", driver, Timeouts(grace_seconds=30), lambda: frozen) is None


def test_what_starts_the_driver_of_a_group() -> None:
    own = ("numactl", "python", "-m", "jobs.streaming.driver.main")
    assert group_command(own) == ("numactl", "python", "-m", "jobs.streaming.groups.main")
    # As a group's keeper gets it.
    assert group_command(group_command(own)) == group_command(own)
    with pytest.raises(FrazilError, match="does not name") as raised:
        group_command(("/usr/local/bin/driver",))
    assert "group: own" in (raised.value.fix or "")
