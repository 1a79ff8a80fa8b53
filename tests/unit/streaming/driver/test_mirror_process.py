"""The process that merges beside a driver: started again when it dies, ended with the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from jobs.base.system.processes import start_time, wait_until_dead
from jobs.streaming.driver.process.mirror_process import MirrorProcess

# What merges ends when its standard input does.
READS = (sys.executable, "-c", "import sys; sys.stdin.read()")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_without_mirrors_there_is_none() -> None:
    process = MirrorProcess(())
    process.ensure()
    assert process.pid is None
    process.end()


def test_one_that_dies_is_started_again_after_a_while() -> None:
    clock = Clock()
    process = MirrorProcess(READS, clock)
    process.ensure()
    first = process.pid
    assert first is not None
    process.ensure()
    assert process.pid == first
    started = start_time(first)
    os.kill(first, signal.SIGKILL)
    assert wait_until_dead(first, started, 10)
    process.ensure()
    assert process.pid is None, "not at once"
    clock.now += 60
    process.ensure()
    second = process.pid
    assert second is not None and second != first
    process.end()
    assert process.pid is None
    clock.now += 60
    process.ensure()
    assert process.pid is None, "the driver ends"


def test_it_ends_with_a_driver_that_is_killed() -> None:
    program = (
        "import sys, time\n"
        "from jobs.streaming.driver.process.mirror_process import MirrorProcess\n"
        f"process = MirrorProcess({READS!r})\n"
        "process.ensure()\n"
        "print(process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        started = start_time(pid)
        driver.kill()
    assert wait_until_dead(pid, started, 20)
