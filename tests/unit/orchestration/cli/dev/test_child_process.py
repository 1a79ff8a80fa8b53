"""Processes that are started and ended, and signals that come at a bad moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.base.system.cpu import tree_cpu_seconds
from jobs.base.system.processes import session_members
from orchestration.cli.common.interrupts import Interrupts, Terminated
from orchestration.cli.local.dev.child_process import Child, end_children
from tests.helpers.waiting import wait_for

# A child that ignores SIGTERM, with a grandchild in a process group of its own, as Spark's Python workers have.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], process_group=0)
print("ready", flush=True)
time.sleep(600)
"""


def start(tmp_path: Path, code: str) -> Child:
    return Child("the test's child", [sys.executable, "-c", code], log=tmp_path / "log", env={"A": "1"}, cwd=tmp_path)


def test_whatever_a_child_started_ends_with_it(tmp_path: Path) -> None:
    child = start(tmp_path, STUBBORN)
    wait_for(lambda: "ready" in child.log.read_text(), "the child")
    assert len(child.members()) == 2
    assert os.getsid(child.pid) == child.pid != os.getsid(0)
    end_children([child], grace_seconds=0.5)
    assert session_members(child.pid) == []


def test_a_grandchild_whose_parent_is_gone_is_found(tmp_path: Path) -> None:
    child = start(tmp_path, STUBBORN)
    wait_for(lambda: "ready" in child.log.read_text(), "the child")
    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: child.ending() == "was ended by SIGKILL", "its end to be told")
    assert len(child.members()) == 1
    end_children([child], grace_seconds=0.5)
    assert session_members(child.pid) == []


def test_a_child_that_ends_shows_the_end_of_its_log(tmp_path: Path) -> None:
    child = start(tmp_path, "print('no such port'); raise SystemExit(3)")
    wait_for(lambda: not child.members(), "its end")
    assert child.ending() == "ended with exit status 3" and "    no such port" in child.last_words()
    end_children([child])


def test_ctrl_c_is_an_exception_and_sigterm_another() -> None:
    with Interrupts():
        with pytest.raises(KeyboardInterrupt) as caught:
            signal.raise_signal(signal.SIGINT)
        assert not isinstance(caught.value, Terminated)
        for number in (signal.SIGTERM, signal.SIGHUP):
            with pytest.raises(Terminated):
                signal.raise_signal(number)


def test_a_signal_waits_for_the_end_of_a_deferred_block() -> None:
    reached = []
    with Interrupts() as interrupts:
        block = interrupts.deferred()
        block.__enter__()
        signal.raise_signal(signal.SIGINT)
        reached.append("the end of the block")
        with pytest.raises(KeyboardInterrupt):
            block.__exit__(None, None, None)
        interrupts.ignore()
        signal.raise_signal(signal.SIGTERM)
        reached.append("the end of the clean-up")
    assert reached == ["the end of the block", "the end of the clean-up"]


def test_handlers_are_put_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with Interrupts():
        assert signal.getsignal(signal.SIGINT) != before[0]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc")
def test_cpu_time_counts_children_that_live_and_children_that_ended() -> None:
    burn = "import time\nwhile time.process_time() < {}: pass\n"
    before = tree_cpu_seconds()
    assert before is not None
    subprocess.run([sys.executable, "-c", burn.format(0.4)], check=True)
    ended = tree_cpu_seconds()
    assert ended is not None
    assert ended - before >= 0.35
    with subprocess.Popen(
        [sys.executable, "-c", burn.format(0.4) + "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        wait_for(lambda: (tree_cpu_seconds(child.pid) or 0) >= 0.35, "the child's work")
        living = tree_cpu_seconds()
        assert living is not None
        assert living - ended >= 0.35
        child.communicate(b"\n")
    assert tree_cpu_seconds(child.pid) is None
