"""Drivers that die, hang, do not listen or leave something behind; and waits that are interrupted."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.processes import (
    is_alive,
    session_members,
    start_time,
    was_given,
)
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.driver_session import DRIVER_VARIABLE
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, write_heartbeat
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.streaming.supervision.launchers.local_process import reap_drivers
from tests.helpers.waiting import wait_for
from tests.unit.streaming.supervision.worlds import (
    IMPATIENT,
    QUICK,
    STANDIN,
    WHY,
    World,
)

# Starts the stream in another process, as a run worker of Dagster does.
STARTER = """
import sys
from pathlib import Path
from tests.unit.streaming.supervision.worlds import STANDIN, QUICK, WHY
from jobs.streaming.supervision.control.stream_control import StreamControl
print("ready", flush=True)
StreamControl(Path(sys.argv[1]), None, "payments", timeouts=QUICK, command=STANDIN).start(*WHY)
print("started", flush=True)
"""


def starter(world: World) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(world.home)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def noted(world: World) -> int:
    wait_for(lambda: read_launched_process(LocalStore(world.folder())), "the note of the process")
    note = read_launched_process(LocalStore(world.folder()))
    assert note is not None
    return note.pid


def test_a_driver_that_dies_before_its_first_beat_is_told_with_the_end_of_its_output(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "die")
    with pytest.raises(FrazilError, match="ended before its first heartbeat") as caught:
        world.control().start(*WHY)
    assert "    no such thing" in caught.value.message
    assert caught.value.fix == f"read {world.folder()}/logs/driver.out"
    assert world.living() == []


def test_a_secret_in_a_drivers_output_is_not_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "die")
    monkeypatch.setenv("CATALOG_TOKEN", "no such thing")
    (world.home / "frazil.yaml").write_text(
        "catalog: {name: lake, properties: {type: rest, uri: 'http://127.0.0.1:1', token: '${env:CATALOG_TOKEN}'}}\n"
    )
    with pytest.raises(FrazilError, match="ended before its first heartbeat") as caught:
        world.control().start(*WHY)
    assert "    ${env:CATALOG_TOKEN}" in caught.value.message
    assert "no such thing" not in str(caught.value)


def test_a_driver_that_dies_leaves_no_grandchild(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "die,grandchild")
    with pytest.raises(FrazilError, match="ended before its first heartbeat"):
        world.control().start(*WHY)
    assert world.living() == []


def test_a_driver_that_never_beats_is_killed_with_all_it_started(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "silent,grandchild")
    with pytest.raises(FrazilError, match="gave no heartbeat within 2 s, and was killed"):
        world.control(timeouts=IMPATIENT).start(*WHY)
    assert world.living() == []


def test_a_driver_that_fails_gives_its_own_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "fail,grandchild")
    with pytest.raises(FrazilError, match="the broker is made of cheese") as caught:
        world.control().start(*WHY)
    assert caught.value.fix == "eat it"
    assert world.living() == []


def test_a_slow_driver_is_left_to_go_on_starting(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "slow")
    done = world.control(timeouts=replace(QUICK, ready_seconds=1)).start(*WHY)
    assert "payments is still starting: process" in done.sentence
    assert world.living() == [world.beat().pid]


def test_what_does_not_listen_is_killed_and_so_is_what_it_started(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "deaf,grandchild")
    world.control().start(*WHY)
    assert len(world.living()) == 2
    assert "did not listen and was killed" in world.control(timeouts=IMPATIENT).stop(*WHY).sentence
    assert world.living() == []


def freeze(world: World) -> Heartbeat:
    """Stop the driver's process, as if it had been for a minute; its lease runs out within a second."""
    beat = world.beat()
    os.kill(beat.pid, signal.SIGSTOP)
    write_heartbeat(LocalStore(world.folder()), msgspec.structs.replace(beat, beat=beat.beat - 60))
    return beat


def test_a_frozen_driver_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped got its minute to answer and ten seconds more, though it was known not to hear."""
    (world.home / "frazil.yaml").write_text("lease_ttl: 1s\n")
    monkeypatch.setenv("STANDIN", "grandchild")
    world.control().start(*WHY)
    frozen = freeze(world)
    wait_for(lambda: (driver := world.control().observe().driver) is not None and driver.frozen, "it to look frozen")
    began = time.monotonic()
    done = world.control(timeouts=replace(QUICK, grace_seconds=600, term_seconds=600)).ensure_running(*WHY)
    assert time.monotonic() - began < 300
    assert "Attempt 1 was frozen and was killed." in done.sentence
    assert session_members(frozen.pid) == []
    # One that freezes while it is waited for is not waited for any longer either.
    assert freeze(world).attempt == 2
    stopped = world.control(timeouts=replace(QUICK, grace_seconds=600, term_seconds=600)).stop(*WHY)
    assert stopped.sentence == "payments is stopped: attempt 2 was frozen and was killed."


def test_a_driver_that_ends_leaves_no_grandchild(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "grandchild")
    world.control().start(*WHY)
    world.control().stop(*WHY)
    assert world.living() == []


def test_what_a_killed_driver_left_behind_goes_before_the_next_one_starts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "grandchild")
    world.control().start(*WHY)
    first = world.beat().pid
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: session_members(first) and first not in session_members(first), "the driver's end")
    monkeypatch.delenv("STANDIN")
    done = world.control().ensure_running("it died", "supervisor")
    assert done.heartbeat is not None
    assert done.heartbeat.attempt == 2
    assert session_members(first) == []


def test_a_stranger_in_a_session_of_the_same_number_is_left_alone(world: World) -> None:
    leader = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    with subprocess.Popen([sys.executable, "-c", leader], start_new_session=True) as process:
        process.wait()
    (stranger,) = session_members(process.pid)
    world.control().start(*WHY)
    world.control().stop(*WHY)
    note_file = world.folder() / "process.json"
    note = read_launched_process(LocalStore(world.folder()))
    assert note is not None
    note_file.write_text(note_file.read_text().replace(f'"pid":{note.pid}', f'"pid":{process.pid}'))
    started = start_time(stranger)
    try:
        world.control().start(*WHY)
        assert is_alive(stranger, started)
    finally:
        os.kill(stranger, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_wait_before_the_first_beat_takes_the_half_started_driver_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("STANDIN", "silent,grandchild")
    code = "from orchestration.cli.common.interrupts import Interrupts\nwith Interrupts():\n" + textwrap.indent(
        STARTER, "    "
    )
    command = [sys.executable, "-c", code, str(world.home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        pid = noted(world)
        wait_for(lambda: len(session_members(pid)) == 2, "the grandchild")
        process.send_signal(number)
        process.wait(300)
    assert session_members(pid) == []


def test_an_interrupted_wait_after_the_first_beat_leaves_the_driver_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "slow")
    with starter(world) as process:
        wait_for(lambda: (world.folder() / "heartbeat.json").exists(), "the first beat")

        def interrupted() -> bool:
            # As a person does who sees that nothing happens.
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1)
            return process.poll() is not None

        wait_for(interrupted, "the starter's end")
    assert world.living() == [world.beat().pid]


def test_a_launcher_that_is_killed_while_it_waits_leaves_a_driver_that_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "silent")
    with starter(world) as process:
        pid = noted(world)
        process.kill()
    wait_for(lambda: session_members(pid) == [pid], "the driver")
    monkeypatch.delenv("STANDIN")
    with pytest.raises(FrazilError, match="gave no heartbeat within 2 s, and was killed"):
        world.control(timeouts=IMPATIENT).ensure_running("no beat", "supervisor")
    assert session_members(pid) == []
    done = world.control().ensure_running("no driver", "supervisor")
    assert world.living() == [world.beat().pid]
    assert done.heartbeat is not None
    assert done.heartbeat.attempt == 2


def test_a_stop_reaches_a_driver_that_has_not_beaten_yet(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN", "silent")
    with starter(world) as process:
        pid = noted(world)
        # It has begun to ignore SIGTERM, or has not yet.
        assert re.search("was killed|ended on SIGTERM", world.control(timeouts=IMPATIENT).stop(*WHY).sentence)
        process.wait(300)
    assert session_members(pid) == []


def test_a_driver_outlives_its_launcher_and_carries_no_terminal(world: World) -> None:
    with starter(world) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        assert process.wait(120) == 0
    pid = world.beat().pid
    assert world.living() == [pid]
    assert os.getsid(pid) == pid
    assert was_given(pid, DRIVER_VARIABLE, "payments:1")
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")


def test_our_own_dead_drivers_are_reaped(world: World) -> None:
    world.control().start(*WHY)
    pid = world.beat().pid
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: start_time(pid) is None, "the driver's end")
    reap_drivers()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_command_that_does_not_exist_is_a_sentence(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_DRIVER_COMMAND", "/no/such/program --fast")
    control = type(world.control())(world.home, None, "payments", timeouts=IMPATIENT)
    with pytest.raises(FrazilError, match="could not be started: /no/such/program: No such file or directory"):
        control.start(*WHY)


def test_the_command_can_be_wrapped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FRAZIL_DRIVER_COMMAND", " ".join(["env", "WRAPPED=yes", *STANDIN]))
    control = type(world.control())(world.home, None, "payments")
    began = time.monotonic()
    control.start(*WHY)
    assert time.monotonic() - began < 150
    assert was_given(world.beat().pid, "WRAPPED", "yes")
