"""Real child processes: alive, dead, zombie, stubborn, and a pid that is somebody else's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.base.system import processes
from jobs.base.system.boot import boot_id
from jobs.base.system.processes import (
    is_alive,
    lives_here,
    proc_stats,
    session_members,
    start_time,
    stop_process,
    wait_until_dead,
)
from tests.helpers.waiting import wait_for

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)
PARENT = (
    "import subprocess, time; child = subprocess.Popen(['sleep', '60']); print(child.pid, flush=True); time.sleep(60)"
)
ORDERLY = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, sys.exit); print('ready', flush=True); time.sleep(60)"
)
# Its main thread goes and another stays, as a JVM is for a moment when it is killed.
HEADLESS = (
    "import ctypes, threading, time; threading.Thread(target=time.sleep, args=(60,)).start(); "
    "ctypes.CDLL(None).pthread_exit(None)"
)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_alive_only_with_the_start_time_noted(sleeper: subprocess.Popen[bytes]) -> None:
    started = start_time(sleeper.pid)
    assert started is not None
    assert is_alive(sleeper.pid, started)
    assert not is_alive(sleeper.pid, f"{started}0")
    assert not is_alive(sleeper.pid, None)


def test_proc_and_ps_agree_on_who_is_alive(sleeper: subprocess.Popen[bytes]) -> None:
    assert processes._start_time_from_ps(sleeper.pid) is not None
    sleeper.kill()
    assert wait_until_dead(sleeper.pid, start_time(sleeper.pid), 5)
    assert processes._start_time_from_ps(sleeper.pid) is None


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    started = start_time(sleeper.pid)
    sleeper.kill()
    assert wait_until_dead(sleeper.pid, started, 120)
    # It was not waited for, so the system still lists it.
    os.kill(sleeper.pid, 0)
    assert start_time(sleeper.pid) is None


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="how Linux shows a process that ends")
def test_a_zombie_whose_threads_live_is_alive_to_everybody() -> None:
    with subprocess.Popen([sys.executable, "-c", HEADLESS], start_new_session=True) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z", "the end of its first thread")
        assert start_time(process.pid) is not None
        assert session_members(process.pid) == [process.pid]
        process.kill()
        wait_for(lambda: not session_members(process.pid), "its end")
        assert start_time(process.pid) is None


def test_stop_ends_it_with_sigterm(sleeper: subprocess.Popen[bytes]) -> None:
    assert stop_process(sleeper.pid, start_time(sleeper.pid), 60)
    assert sleeper.wait() == -signal.SIGTERM


def test_stop_kills_what_does_not_listen() -> None:
    with subprocess.Popen([sys.executable, "-c", STUBBORN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert stop_process(process.pid, start_time(process.pid), 0.2)
        assert process.wait() == -signal.SIGKILL


def test_stop_leaves_a_process_of_another_start_time_alone(sleeper: subprocess.Popen[bytes]) -> None:
    assert not stop_process(sleeper.pid, "1", 0.1)
    assert sleeper.poll() is None


def test_stop_takes_the_group_that_it_leads() -> None:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        started = start_time(child)
        assert started is not None
        assert stop_process(process.pid, start_time(process.pid), 5)
        assert wait_until_dead(child, started, 5)


def test_stop_kills_what_was_stopped_by_a_signal() -> None:
    with subprocess.Popen([sys.executable, "-c", ORDERLY], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, signal.SIGSTOP)
        assert stop_process(process.pid, start_time(process.pid), 0.2)
        assert process.wait() == -signal.SIGKILL


def test_waiting_ends_at_the_deadline(sleeper: subprocess.Popen[bytes]) -> None:
    began = time.monotonic()
    assert not wait_until_dead(sleeper.pid, start_time(sleeper.pid), 0.1)
    assert time.monotonic() - began < 30, "the sleeper sleeps for a minute"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_command_name_with_brackets_and_spaces(tmp_path: Path) -> None:
    odd = tmp_path / ") Z 1 ("
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as process:
        started = start_time(process.pid)
        assert started is not None
        ticks, _, namespace = started.partition("@")
        assert ticks.isdigit() and namespace.isdigit()
        assert is_alive(process.pid, started)
        assert is_alive(process.pid, ticks), "as earlier releases recorded it"
        assert not is_alive(process.pid, str(int(ticks) - 1))
        process.kill()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_whether_a_process_of_another_pid_namespace_runs_cannot_be_told(sleeper: subprocess.Popen[bytes]) -> None:
    """Containers on one host may share its name, and number their processes each by itself."""
    started, here = str(start_time(sleeper.pid)), (boot_id(), socket.gethostname())
    assert lives_here(sleeper.pid, started, *here) is True
    ticks, _, namespace = started.partition("@")
    other = f"{ticks}@{int(namespace) + 1}"
    assert lives_here(sleeper.pid, other, *here) is None
    assert lives_here(2**22, other, *here) is None
    assert lives_here(2**22, ticks, *here) is False, "a record of an earlier release names no namespace"


def test_processes_that_this_user_may_not_see_are_left_out(tmp_path: Path) -> None:
    """As with /proc mounted `hidepid=1`: the folder of a stranger's process is there, its files are not to be read."""
    stat = f"{os.getpid()} (name) S 1 " + " ".join(map(str, range(5, 53)))
    for pid in ("1", "17"):
        (tmp_path / pid).mkdir()
    (tmp_path / "17" / "stat").write_text(stat)
    # Reading it fails with an OSError, for root too.
    (tmp_path / "1" / "stat").mkdir()
    assert [(pid, fields[:2]) for pid, fields in proc_stats(tmp_path)] == [(17, ["S", "1"])]
    assert list(proc_stats(tmp_path / "no proc")) == []
