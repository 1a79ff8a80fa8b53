"""A keeper and its driver, real processes both; the driver only beats. Either is killed, stopped or told to end."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from jobs.base.system.locks import exclusive
from jobs.base.system.processes import session_members, start_time
from jobs.clients.state_store.local_store import LocalStore
from jobs.config.settings.settings import load_settings
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.keeper_record import KeeperRecord, find_keeper, read_keeper
from jobs.streaming.supervision.documents.launches import (
    Launch,
    read_launch,
    read_launched_process,
    write_launch,
)
from orchestration.cli.local.attended_streams import attended_streams, streams_with_drivers
from tests.helpers.waiting import wait_for
from tests.unit.streaming.supervision.worlds import STANDIN, WHY, World

SOON = 40.0


@pytest.fixture
def kept(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The world with a driver that commits, and its keeper; no keeper outlives the test."""
    monkeypatch.setenv("STANDIN", "kept,lands")
    world.control().start(*WHY)
    keeper_of(world)
    yield world
    note = read_keeper(LocalStore(world.folder()))
    if note is not None and note.lives():
        os.kill(note.pid, signal.SIGKILL)
        wait_for(lambda: not note.lives(), "the keeper's end")
    monkeypatch.delenv("STANDIN")
    if world.request().mode == "running":
        world.control().stop(*WHY)


def keeper_of(world: World, attempt: int = 1) -> KeeperRecord:
    wait_for(lambda: find_keeper(LocalStore(world.folder()), attempt), f"the watchdog of attempt {attempt}", SOON)
    note = find_keeper(LocalStore(world.folder()), attempt)
    assert note is not None
    return note


def kill(world: World, which: signal.Signals = signal.SIGKILL) -> int:
    pid = world.beat().pid
    os.kill(pid, which)
    return pid


def runs(world: World, attempt: int, seconds: float = SOON) -> Heartbeat:
    def beats() -> bool:
        beat = world.beat()
        return beat.attempt == attempt and beat.state == "running"

    wait_for(beats, f"attempt {attempt} to run", seconds)
    return world.beat()


def newest(world: World) -> Launch:
    launch = read_launch(LocalStore(world.folder()))
    assert launch is not None
    return launch


def ends(keeper: KeeperRecord, seconds: float = SOON) -> None:
    wait_for(lambda: not keeper.lives(), "the keeper's end", seconds)


def nobody_starts_another(world: World, attempt: int = 1) -> None:
    assert newest(world).attempt == attempt
    note = read_launched_process(LocalStore(world.folder()))
    assert note is not None
    assert note.attempt == attempt
    assert world.living() == []


def test_a_killed_driver_is_back_at_once_without_a_supervisor(kept: World) -> None:
    keeper, first = keeper_of(kept), kept.beat()
    kill(kept)
    second = runs(kept, 2)
    assert second.pid != first.pid
    assert second.generation == first.generation
    assert session_members(first.pid) == []
    launch = newest(kept)
    assert (launch.attempt, launch.failures, launch.kept) == (2, 1, 1)
    why = f"attempt 1 (process {first.pid}) ended without a report"
    assert launch.reason == f"its watchdog: {why}"
    assert [(each.attempt, each.why) for each in launch.kept_newest] == [(2, why)]
    ends(keeper)
    # One that gets on is started again at once, however often it is killed.
    for attempt in range(3, 6):
        keeper_of(kept, attempt - 1)
        kill(kept)
        runs(kept, attempt)
        assert newest(kept).failures == 1
    assert newest(kept).kept == 4
    assert kept.control().start(*WHY).sentence.startswith("payments runs already")


def test_what_a_killed_driver_left_behind_is_ended_first(kept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "kept,lands,grandchild")
    kept.control().restart(*WHY)
    keeper_of(kept, 2)
    first = kill(kept)
    runs(kept, 3)
    assert session_members(first) == []


def pausing_keeper(world: World, pause: float) -> KeeperRecord:
    """The keeper of a stream that was killed twice without a commit, while it waits so many seconds."""
    world.control().start(*WHY)
    keeper_of(world)
    kill(world)
    runs(world, 2)
    keeper = keeper_of(world, 2)
    kill(world)
    wait_for(
        lambda: (note := read_keeper(LocalStore(world.folder()))) is not None and note.pause == pause,
        "the pause to be told",
    )
    return keeper


def test_without_a_commit_the_pauses_grow_and_an_end_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("payments", "restart: {max_restarts: 2, first_delay: 2s, longest_delay: 3s}\n")
    monkeypatch.setenv("STANDIN", "kept")
    keeper, died = pausing_keeper(world, 2.0), time.monotonic()
    runs(world, 3)
    assert time.monotonic() - died > 1.0
    assert newest(world).failures == 2
    ends(keeper)
    keeper = keeper_of(world, 3)
    kill(world)
    ends(keeper)
    nobody_starts_another(world, 3)


def test_a_keeper_that_pauses_hears_that_its_driver_is_drained(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.write("payments", "restart: {max_restarts: 2, first_delay: 30s, longest_delay: 30s}\n")
    monkeypatch.setenv("STANDIN", "kept")
    keeper = pausing_keeper(world, 30.0)
    settings = load_settings(None, home=world.home)
    assert (streams_with_drivers(settings), attended_streams(settings)) == ([], ["payments"])
    assert world.control().drain_driver(*WHY).sentence == "payments has no driver."
    ends(keeper)
    nobody_starts_another(world, 2)
    assert attended_streams(settings) == []
    monkeypatch.delenv("STANDIN")
    done = world.control().ensure_running("wanted as before", "supervisor")
    assert done.heartbeat is not None
    assert done.heartbeat.attempt == 3


def test_a_paused_stream_is_started_when_it_is_resumed(kept: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = keeper_of(kept)
    kept.control().pause(*WHY)
    kill(kept)
    ends(keeper)
    nobody_starts_another(kept)
    kept.control().resume(*WHY)
    runs(kept, 2)
    keeper_of(kept, 2)


def test_the_next_launch_has_a_keeper_of_its_own(kept: World) -> None:
    before = keeper_of(kept)
    kept.control().restart(*WHY)
    ends(before)
    assert keeper_of(kept, 2).pid != before.pid
    kill(kept)
    runs(kept, 3)


def test_a_killed_keeper_is_replaced_by_its_driver_which_runs_on(kept: World) -> None:
    before, pid = keeper_of(kept), kept.beat().pid
    os.kill(before.pid, signal.SIGKILL)
    ends(before)
    wait_for(lambda: keeper_of(kept).pid != before.pid, "another keeper")
    assert (kept.beat().pid, newest(kept).attempt) == (pid, 1)
    kill(kept)
    runs(kept, 2)


def test_where_both_are_killed_the_supervisor_starts_the_stream(kept: World) -> None:
    keeper = keeper_of(kept)
    os.kill(keeper.pid, signal.SIGSTOP)
    first = kill(kept)
    os.kill(keeper.pid, signal.SIGKILL)
    ends(keeper)
    assert newest(kept).attempt == 1

    def is_started() -> bool:
        # As each tick does: until somebody has reaped the killed driver, it counts as alive.
        kept.control().ensure_running("it died", "supervisor")
        return newest(kept).attempt == 2

    wait_for(is_started, "the supervisor to start the stream", SOON)
    assert runs(kept, 2).pid != first
    assert newest(kept).kept == 0


@pytest.mark.parametrize(
    "step", ["keeper_saw_death", "keeper_before_launch", "after_launch_note", "keeper_after_launch"]
)
def test_a_keeper_killed_on_its_way_leaves_one_driver_or_none(
    world: World, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setenv("STANDIN", "kept,lands")
    # The driver hands it on to its keeper, and never passes it itself.
    command = ("env", f"FRAZIL_STEPS={step}=kill", *world.control()._life._command)
    control = type(world.control())(world.home, None, "payments", command=command)
    control.start(*WHY)
    keeper = keeper_of(world)
    kill(world)
    ends(keeper)
    launched = {"after_launch_note": 2, "keeper_after_launch": 2}.get(step, 1)
    assert newest(world).attempt == launched
    if step == "keeper_after_launch":
        assert runs(world, 2).attempt == 2
        wait_for(lambda: find_keeper(LocalStore(world.folder()), 2), "a watchdog of its own", SOON)
        after = 2
    else:
        monkeypatch.setenv("STANDIN", "lands")
        world.control().ensure_running("it died", "supervisor")
        after = launched + 1
    assert runs(world, after).attempt == after
    assert world.living() == [world.beat().pid]
    monkeypatch.delenv("STANDIN")
    world.control().stop(*WHY)
    assert world.living() == []


def test_keeper_and_supervisor_at_once_make_one_driver(kept: World) -> None:
    for attempt in range(2, 5):
        keeper_of(kept, attempt - 1)
        dead = kill(kept)
        # A kill is over when the kernel says so; until then a supervisor that looks finds a driver that runs.
        wait_for(lambda dead=dead: start_time(dead) is None, "the driver's end")
        # Under the lock either sees what the other one has launched.
        done = kept.control().ensure_running("it died", "supervisor")
        assert done.heartbeat is not None
        beat = runs(kept, newest(kept).attempt)
        assert newest(kept).attempt == attempt
        assert kept.living() == [beat.pid]


def test_an_action_that_holds_the_lock_is_waited_for(kept: World) -> None:
    with exclusive(kept.folder() / "control.lock", deadline_seconds=5):
        first = kill(kept)
        wait_for(lambda: start_time(first) is None, "the driver's end")
        launch = newest(kept)
        # As an action that is killed behind its note: nobody else may take the number.
        noted = msgspec.structs.replace(launch, attempt=2, reason="an action")
        write_launch(LocalStore(kept.folder()), noted, (kept.folder() / "launched.yaml").read_text())
    keeper = read_keeper(LocalStore(kept.folder()))
    assert keeper is not None
    ends(keeper)
    assert newest(kept).reason == "an action"
    assert kept.living() == []


def test_there_is_one_keeper_per_stream(kept: World) -> None:
    keeper, beat = keeper_of(kept), kept.beat()
    order = {"folder": str(kept.folder()), "stream": "payments", "attempt": 1, "pid": beat.pid, "started": beat.started}
    order |= {"arguments": [], "policy": {}}
    command = [sys.executable, "-m", "jobs.streaming.supervision.keeper.keeper_process", json.dumps(order)]
    assert subprocess.run(command, timeout=300, check=False).returncode == 0, "another one gives way at once"
    assert keeper_of(kept) == keeper


def test_a_keeper_is_small_and_has_nothing_of_its_drivers_mark(kept: World) -> None:
    keeper = keeper_of(kept)
    environment = Path(f"/proc/{keeper.pid}/environ").read_bytes()
    assert f"{DRIVER_VARIABLE}=".encode() not in environment
    assert os.getsid(keeper.pid) == keeper.pid
    memory = Path(f"/proc/{keeper.pid}/smaps_rollup").read_text()
    (shared,) = re.findall(r"^Pss: +(\d+) kB$", memory, re.MULTILINE)
    assert int(shared) < 10_000


def test_a_launch_that_ends_before_its_first_beat_is_left_to_the_supervisor(
    kept: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a mistake in frazil.yaml: the keeper would otherwise use up the restarts, and leave the stream halted."""
    keeper, settings = keeper_of(kept), kept.home / "frazil.yaml"
    settings.write_text("no_such_key: 1\n")
    kill(kept)
    ends(keeper)
    wait_for(lambda: kept.living() == [], "the end of attempt 2")
    nobody_starts_another(kept, 2)
    assert newest(kept).failures == 1
    settings.unlink()
    kept.control().ensure_running("the settings are right again", "supervisor")
    runs(kept, 3)


def test_no_keeper_where_it_is_switched_off(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "kept")
    monkeypatch.setenv("FRAZIL_KEEPER", "off")
    world.control().start(*WHY)
    runs(world, 1)
    assert read_keeper(LocalStore(world.folder())) is None


def test_a_note_that_cannot_be_read_is_none(world: World) -> None:
    world.folder().mkdir(parents=True)
    for text in ("", "{", "[]", '{"attempt": 1}', "7"):
        (world.folder() / "keeper.json").write_text(text)
        assert read_keeper(LocalStore(world.folder())) is None


EARLIER = """
import json, sys
sys.orig_argv = [sys.executable, "-m", "jobs.supervise.keeper_process", sys.argv[1]]
from jobs.supervise.{module} import {name}
"""


@pytest.mark.parametrize(("module", "name"), [("kept_stream", "KeptStream"), ("keeper_restart", "restart_driver")])
def test_a_keeper_of_an_earlier_release_begins_anew_with_its_order(
    world: World, monkeypatch: pytest.MonkeyPatch, module: str, name: str
) -> None:
    """It has that release's modules in memory, and imports what it acts with when its driver has ended."""
    monkeypatch.setenv("STANDIN", "lands")
    world.control().start(*WHY)
    beat = world.beat()
    order = {
        "folder": str(world.folder()),
        "stream": "payments",
        "attempt": 1,
        "pid": beat.pid,
        "started": beat.started,
    }
    order |= {"arguments": ["--home", str(world.home), "--stream", "payments"]}
    order |= {"policy": {"max_restarts": 7, "first_delay": 10.0, "longest_delay": 600.0, "stable_after": 600.0}}
    monkeypatch.setenv("FRAZIL_DRIVER_COMMAND", shlex.join(STANDIN))
    command = [sys.executable, "-c", EARLIER.format(module=module, name=name), json.dumps(order)]
    keeper = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert keeper_of(world).pid == keeper.pid, "it waits again while its driver lives"
    kill(world)
    assert runs(world, 2).generation == beat.generation
    _, said = keeper.communicate(timeout=300)
    assert keeper.returncode == 0 and "ended without a report; it is started again" in said, said
    assert newest(world).kept == 1


def test_what_a_keeper_acts_with_is_small() -> None:
    heavy = "{'pydantic', 'pyiceberg', 'pyarrow', 'pyspark'}"
    code = f"import sys, jobs.streaming.supervision.keeper.keeper_restart; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "set()\n"
