"""Actions on a slow machine: documents lag behind what a launcher says, and a start takes longer than an action waits.

A launcher of the test says at once how drivers are, so nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.services.launcher_name import LauncherName
from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, State, write_heartbeat
from jobs.streaming.supervision.documents.launches import (
    Launch,
    LaunchedProcess,
    read_launch,
    write_launch,
    write_launched_process,
)
from jobs.streaming.supervision.launchers import choice
from jobs.streaming.supervision.launchers.launcher import (
    DriverOrder,
    Launcher,
    Life,
    Look,
)
from jobs.streaming.supervision.processes import actual
from jobs.streaming.supervision.processes.groups import DriverGroup
from jobs.streaming.supervision.processes.termination import Timeouts
from tests.unit.streaming.supervision.worlds import (
    IMPATIENT,
    QUICK,
    WHY,
    World,
)


@dataclass
class Pods:
    """A launcher whose pods are names.

    Attributes:
        lives: How each pod is, by its handle.
        on_start: Called with each new process, for what its driver does.
    """

    lives: dict[str, Life] = field(default_factory=dict)
    on_start: Callable[[LaunchedProcess], None] = lambda process: None

    @property
    def name(self) -> LauncherName:
        return "kubernetes"

    def check(self) -> str:
        return ""

    def handle(self, label: str, attempt: int) -> str:
        return f"{label}-{attempt}"

    def start(self, order: DriverOrder) -> LaunchedProcess:
        process = pod(order.label, order.launch.attempt, order.launch.generation)
        self.lives[process.handle] = "alive"
        self.on_start(process)
        return process

    def look(self, process: LaunchedProcess) -> Look:
        return Look(self.lives[process.handle])

    def end(self, process: LaunchedProcess, label: str, seconds: float) -> bool:
        self.lives[process.handle] = "ended"
        return True


# Nothing runs it: the launcher of the test starts no process.
COMMAND = ("python", "-m", "jobs.streaming.driver.main")


def control(world: World, timeouts: Timeouts = QUICK) -> StreamControl:
    return StreamControl(world.home, None, "payments", timeouts=timeouts, command=COMMAND)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A deployment in which nothing is a process of this machine, so nothing is ended after the test."""
    return World(tmp_path)


@pytest.fixture
def pods(monkeypatch: pytest.MonkeyPatch) -> Pods:
    made = Pods()

    def chosen(name: LauncherName, settings: Settings) -> Launcher:
        return made

    monkeypatch.setattr(choice, "_launcher", chosen)
    return made


def pod(label: str, attempt: int, generation: str, group: str | None = None) -> LaunchedProcess:
    return LaunchedProcess(attempt, generation, 0, "", "", "", time.time(), group, "kubernetes", f"{label}-{attempt}")


def folder(world: World) -> StreamFolder:
    return stream_folder(settings(world), "payments")


def settings(world: World) -> Settings:
    return load_settings(None, home=world.home)


def runs(world: World, attempt: int, generation: str, state: State = "running") -> None:
    """Write a heartbeat of a driver of the stream, as of now."""
    now = time.time()
    who = ("payments", generation, attempt, 17, "1", "another boot", "node-7")
    write_heartbeat(folder(world).store, Heartbeat(*who, now, state, now, boot_clock(), now))


def started(world: World, pods: Pods) -> str:
    """Start the stream, with a driver that runs at once; returns its generation."""
    pods.on_start = lambda process: runs(world, process.attempt, process.generation)
    assert "payments runs: " in control(world).start(*WHY).sentence
    return world.beat().generation


@pytest.mark.parametrize("action", ["start", "ensure_running"])
def test_a_driver_that_was_seen_dead_is_replaced_though_its_last_heartbeat_is_young(
    world: World, pods: Pods, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """A heartbeat is as old as it has been seen unchanged here, so it may look young for as long as an action takes."""
    monkeypatch.setattr(actual, "QUIET_SECONDS", float("inf"))
    started(world, pods)
    pods.lives["payments-1"] = "ended"
    done = getattr(control(world), action)(*WHY)
    assert done.heartbeat is not None
    assert (done.heartbeat.state, done.heartbeat.attempt) == ("running", 2)
    assert list(pods.lives) == ["payments-1", "payments-2"]


def test_a_driver_that_was_ended_is_replaced_though_it_has_said_no_last_word(
    world: World, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actual, "QUIET_SECONDS", float("inf"))
    started(world, pods)
    done = control(world, IMPATIENT).restart(*WHY)
    assert done.heartbeat is not None
    assert done.heartbeat.attempt == 2
    assert done.sentence.count("Attempt 1 ended on the removal of its pod.") == 1
    assert list(pods.lives) == ["payments-1", "payments-2"]


def test_a_stream_that_its_group_has_not_begun_yet_is_no_failure(world: World, pods: Pods) -> None:
    """The group's driver is on its way up, or starts another stream alone: it begins this one when it can."""
    world.write("payments", "group: small\n")
    done = control(world, IMPATIENT).start(*WHY)
    expected = "payments is given to the driver of its group, which begins it when it can: pod group:small-1."
    assert (done.sentence, done.heartbeat) == (expected, None)
    # Asked again, it is still the same driver, and still the same launch.
    again = control(world, IMPATIENT).ensure_running(*WHY)
    assert (again.sentence, list(pods.lives)) == (expected, ["group:small-1"])
    launch = read_launch(folder(world).store)
    assert launch is not None
    assert launch.attempt == 1


def test_a_groups_driver_that_ends_is_seen_to_its_end_and_followed(
    world: World, pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One under other settings makes room. Its heartbeat stays young; that it has ended, its launcher says."""
    monkeypatch.setattr(actual, "QUIET_SECONDS", float("inf"))
    group = DriverGroup.of(settings(world), "small")
    write_launch(group.folder.store, Launch(1, "former", "", 0, time.time(), launcher="kubernetes", handle="g-1"), "")
    write_launched_process(group.folder.store, msgspec.structs.replace(pod("g", 1, "former"), handle="g-1"))
    pods.lives["g-1"] = "alive"
    world.write("payments", "group: small\n")
    done = control(world, IMPATIENT).start(*WHY)
    assert "is given to the driver of its group, which begins it when it can: pod group:small-2" in done.sentence
    assert pods.lives == {"g-1": "ended", "group:small-2": "alive"}
