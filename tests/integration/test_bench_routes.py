"""The benchmark of routes beside a real Connect sink: what ends it ends all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jobs.system.processes import is_alive, start_time

_WAITING = """
import sys, time
import bench.routes_connect as bench

def by_connect(home, broker, topic, load, tasks, say):
    print(broker.status().pid, flush=True)
    time.sleep(600)

bench.by_connect = by_connect
bench.compare(bench.Workload(2, False, 10, 2), 1, 1)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_ended_leaves_no_broker_behind(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _WAITING],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        process_group=0,
    ) as process:
        try:
            assert process.stdout is not None
            broker = int(process.stdout.readline())
            started = start_time(broker)
            assert is_alive(broker, started)
            process.send_signal(number)
            assert process.wait(60) == 130
            deadline = time.monotonic() + 20
            while is_alive(broker, started) and time.monotonic() < deadline:
                time.sleep(0.05)
            assert not is_alive(broker, started)
            assert not list(tmp_path.glob("frazil-bench-*"))
        finally:
            process.kill()
