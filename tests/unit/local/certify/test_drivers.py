"""Watching processes come and die; real ones, that stand in for drivers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.base.system.boot import boot_id
from jobs.base.system.processes import start_time
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.settings.settings import Settings
from jobs.local.certify.drivers import Drivers, DriverWatch, armed_command
from jobs.local.certify.workspace import STREAM, prepare_workspace
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE, driver_id
from jobs.streaming.supervision.documents.launches import LaunchedProcess, write_launched_process
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from tests.helpers.waiting import wait_for


def eventually(condition: Callable[[], bool]) -> None:
    wait_for(condition, "it")


@pytest.fixture
def sleepers() -> Iterator[Callable[[int], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(attempt: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", "import time; time.sleep(600)"]
        env = {**os.environ, DRIVER_VARIABLE: driver_id(STREAM, attempt)}
        started.append(subprocess.Popen(command, env=env, start_new_session=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


def note(folder: StreamFolder, process: subprocess.Popen[bytes], attempt: int) -> None:
    started = str(start_time(process.pid))
    write_launched_process(
        folder.store, LaunchedProcess(attempt, "g", process.pid, started, boot_id(), socket.gethostname(), time.time())
    )


def test_a_watch_sees_the_next_driver_die(tmp_path: Path, sleepers: Callable[[int], subprocess.Popen[bytes]]) -> None:
    before, process = sleepers(3), sleepers(4)
    note(StreamFolder.at(tmp_path), before, 3)
    watch = DriverWatch(StreamFolder.at(tmp_path), after=3)
    watch.start()
    before.kill()
    note(StreamFolder.at(tmp_path), process, 4)
    eventually(lambda: watch.note is not None)
    assert watch.note is not None
    assert watch.note.attempt == 4
    assert watch.died_at is None
    killed_at = time.time()
    watch.kill()
    eventually(lambda: watch.died_at is not None)
    assert watch.died_at is not None
    assert 0 <= watch.died_at - killed_at < 60
    assert process.wait(120) == -signal.SIGKILL


def test_a_watch_kills_at_its_moment(tmp_path: Path, sleepers: Callable[[int], subprocess.Popen[bytes]]) -> None:
    process = sleepers(1)
    watch = DriverWatch(StreamFolder.at(tmp_path), after=0, kill_after=0.2)
    watch.start()
    began = time.time()
    note(StreamFolder.at(tmp_path), process, 1)
    eventually(lambda: watch.died_at is not None)
    assert watch.killed
    assert watch.died_at is not None
    assert watch.died_at - began >= 0.2


def test_a_watch_reads_only_what_was_said_since(tmp_path: Path) -> None:
    output = tmp_path / "logs" / "driver.out"
    output.parent.mkdir()
    output.write_text("step after_tasks: SIGKILL\n")
    watch = DriverWatch(StreamFolder.at(tmp_path), after=0)
    assert not watch.said("step after_tasks: SIGKILL")
    with output.open("a") as file:
        file.write("step before_commit: SIGKILL\n")
    assert watch.said("step before_commit: SIGKILL")
    assert not watch.said("step after_tasks: SIGKILL")
    with output.open("a") as file:
        file.write("mirror a.b: it is over\nlease: lost\n")
    assert watch.said("mirror a.b: ", "over")
    assert not watch.said("mirror a.b: ", "lost"), "that is another line"


def test_orphans_are_found_and_ended(tmp_path: Path, sleepers: Callable[[int], subprocess.Popen[bytes]]) -> None:
    workspace = prepare_workspace(Settings.embedded(tmp_path), "run")
    drivers = Drivers(workspace)
    first, second = sleepers(1), sleepers(2)
    for attempt, process in enumerate((first, second), start=1):
        note(drivers.folder, process, attempt)
        drivers.remember()
    assert sorted(drivers.orphans()) == sorted([first.pid, second.pid])
    assert drivers.orphans(but=2) == [first.pid]
    drivers.end_all()
    assert drivers.orphans() == []
    assert first.wait(120) == second.wait(120) == -signal.SIGKILL


def test_only_the_driver_is_armed(monkeypatch: pytest.MonkeyPatch) -> None:
    show = [sys.executable, "-c", "import json, os; print(json.dumps(os.environ.get('FRAZIL_STEPS')))"]
    monkeypatch.setenv(COMMAND_VARIABLE, f'{show[0]} {show[1]} "{show[2]}"')
    monkeypatch.setenv("FRAZIL_STEPS", "")
    said = subprocess.run(armed_command("after_tasks=kill@2"), capture_output=True, text=True, check=True).stdout
    assert json.loads(said) == "after_tasks=kill@2"
    assert os.environ["FRAZIL_STEPS"] == ""
