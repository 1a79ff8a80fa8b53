"""What a run has used, read from /proc while its processes come and go."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.versus.process_usage import UsageSampler
from tests.helpers.waiting import wait_for

# A child that works and is ended; as Spark of its Python workers, its parent never asks what it used.
PARENT = r"""
import signal, subprocess, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
work = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ntime.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", work], stdout=subprocess.PIPE)
child.stdout.readline()
print("worked", flush=True)
input()
child.kill()
print("ended", flush=True)
input()
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="CPU time is read from /proc")
def test_what_an_ended_worker_used_stays_used() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        with UsageSampler(parent.pid, os.getpid()) as watch:
            assert parent.stdout.readline() == "worked\n"
            wait_for(lambda: watch.readings[-1].cpu >= 0.45, "the worker's time")
            parent.stdin.write("\n")
            parent.stdin.flush()
            assert parent.stdout.readline() == "ended\n"
            seen = len(watch.readings)
            wait_for(lambda: len(watch.readings) > seen + 2, "readings without the worker")
        parent.stdin.write("\n")
    used = [reading.cpu for reading in watch.readings]
    assert used[-1] >= 0.45
    assert all(before <= after for before, after in itertools.pairwise(used))
