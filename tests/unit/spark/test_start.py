"""A session that starts beside its caller: begun once, given as soon as it is there, ended also half-way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.spark import start as start_module
from jobs.spark.start import SessionStart
from jobs.spark.worker_daemon import TASKS


class Spark:
    """A session that is there when it is let in; notes what happens to it."""

    def __init__(self) -> None:
        self.let_in: threading.Event = threading.Event()
        self.happened: list[str] = []
        self.defaultParallelism: int = 2
        self.master: str = "local[2]"

    def make(self) -> Any:
        self.happened.append("starts")
        assert self.let_in.wait(30)
        self.happened.append("is there")
        return SimpleNamespace(sparkContext=self)

    def parallelize(self, numbers: range, slices: int) -> Any:
        assert (len(numbers), slices) == (2, 2)

        def run(work: Any) -> None:
            work(iter(numbers))
            self.happened.append("workers start")
            raise RuntimeError("the first batch would say so, too")

        return SimpleNamespace(foreachPartition=run)


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    made = Spark()
    monkeypatch.setattr(start_module, "end_spark", lambda: made.happened.append("ends"))
    return made


def test_it_is_begun_once_and_the_workers_are_started_behind_it(spark: Spark) -> None:
    start = SessionStart(spark.make)
    start.begin()
    start.begin()
    spark.let_in.set()
    session: Any = start.get()
    assert session.sparkContext is spark
    assert start.get() is session
    start.end()
    assert sorted(spark.happened) == ["ends", "is there", "starts", "workers start"]


def test_nobody_asked_for_it(spark: Spark) -> None:
    SessionStart(spark.make).end()
    assert spark.happened == []


def test_the_end_waits_for_a_start_that_is_under_way(spark: Spark) -> None:
    start = SessionStart(spark.make)
    start.begin()
    threading.Timer(0.2, spark.let_in.set).start()
    start.end()
    assert spark.happened.index("is there") < spark.happened.index("ends")


def test_a_start_that_failed_is_tried_again_by_who_asks_again(spark: Spark) -> None:
    """A disk that was full has room again; a JVM that was killed starts the next time."""
    problems = [OSError("no room"), ValueError("no Java")]

    def fails_twice() -> Any:
        if problems:
            raise problems.pop(0)
        return spark.make()

    start = SessionStart(fails_twice)
    start.begin()
    with pytest.raises(OSError, match="no room"):
        start.get()
    with pytest.raises(ValueError, match="no Java"):
        start.get()
    # Whatever each left is ended before the next begins.
    assert spark.happened == ["ends", "ends"]
    spark.let_in.set()
    session: Any = start.get()
    assert session.sparkContext is spark
    start.end()
    assert spark.happened[-1] == "ends"


def test_what_the_workers_share_has_no_thread_that_a_fork_would_lose() -> None:
    program = f"""
import importlib, pathlib
for name in {TASKS!r}: importlib.import_module(name)
print(*(file.read_text().strip() for file in pathlib.Path("/proc/self/task").glob("*/comm")))
"""
    if not Path("/proc/self/task").exists():
        pytest.skip("only Linux lists a process's threads")
    # OpenBLAS starts threads beside the main one again behind a fork, as jemalloc does with its own.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert len([name for name in said.stdout.split() if name != "jemalloc_bg_thd"]) == 1
