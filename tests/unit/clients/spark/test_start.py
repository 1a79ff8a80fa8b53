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

from jobs.base.errors import FrazilError
from jobs.clients.spark.start import SessionOnDemand, SessionStart
from jobs.clients.spark.worker_daemon import TASKS


class Spark:
    """A session that is there when it is let in; notes what happens to it."""

    def __init__(self) -> None:
        self.let_in: threading.Event = threading.Event()
        self.happened: list[str] = []
        self.defaultParallelism: int = 2
        self.master: str = "local[2]"

    def make(self) -> Any:
        self.happened.append("starts")
        assert self.let_in.wait(120)
        self.happened.append("is there")
        return SimpleNamespace(sparkContext=self)

    def parallelize(self, numbers: range, slices: int) -> Any:
        assert (len(numbers), slices) == (2, 2)

        def run(work: Any) -> None:
            work(iter(numbers))
            self.happened.append("workers start")
            raise RuntimeError("the first batch would say so, too")

        return SimpleNamespace(foreachPartition=run)

    def end(self) -> None:
        self.happened.append("ends")


@pytest.fixture
def spark() -> Spark:
    return Spark()


def test_it_is_begun_once_and_the_workers_are_started_behind_it(spark: Spark) -> None:
    start = SessionStart(spark.make, end=spark.end)
    start.begin()
    start.begin()
    spark.let_in.set()
    session: Any = start.get()
    assert session.sparkContext is spark
    assert start.get() is session
    start.end()
    assert sorted(spark.happened) == ["ends", "is there", "starts", "workers start"]


def test_nobody_asked_for_it(spark: Spark) -> None:
    SessionStart(spark.make, end=spark.end).end()
    assert spark.happened == []


def test_the_end_waits_for_a_start_that_is_under_way(spark: Spark) -> None:
    start = SessionStart(spark.make, end=spark.end)
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

    start = SessionStart(fails_twice, end=spark.end)
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


class Jvms:
    """Stands for PySpark: sessions are numbers, of which the newest may be dead."""

    def __init__(self) -> None:
        self.started: int = 0
        self.gone: bool = False

    def end(self) -> None:
        self.gone = False

    def make(self) -> Any:
        # It cannot start before the dead one was put away.
        assert not self.gone
        self.started += 1
        return self.started


def test_a_jvm_that_has_ended_is_given_to_nobody_who_asks_later() -> None:
    jvms = Jvms()
    session = SessionOnDemand(jvms.make, is_gone=lambda: jvms.gone, end=jvms.end)
    assert jvms.started == 0
    assert [session.get(), session.get()] == [1, 1]
    jvms.gone = True
    assert [session.get(), session.get()] == [2, 2]


def test_a_jvm_that_nobody_uses_ends_and_another_one_starts() -> None:
    jvms = Jvms()
    session = SessionOnDemand(jvms.make, is_gone=lambda: jvms.gone, end=jvms.end)
    assert not session.end_unused(0.0)
    assert session.get() == 1
    assert not session.end_unused(600.0)
    assert session.get() == 1
    assert session.end_unused(0.0)
    assert not session.end_unused(0.0)
    assert [session.get(), session.get()] == [2, 2]


@pytest.mark.parametrize(("again", "tried"), [(True, 2), (False, 1)])
def test_who_asks_after_a_start_that_failed(again: bool, tried: int) -> None:
    asked: list[int] = []

    def refused() -> Any:
        asked.append(1)
        raise FrazilError("no Java")

    session = SessionOnDemand(refused, again=again)
    for _ in range(2):
        with pytest.raises(FrazilError, match="no Java"):
            session.get()
    assert len(asked) == tried


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


def test_an_application_that_is_over_is_replaced_once_whoever_asks() -> None:
    over: list[int] = []
    happened: list[str] = []
    numbers = iter(range(9))

    def make() -> Any:
        made = next(numbers)
        happened.append(f"starts {made}")
        return SimpleNamespace(number=made, sparkContext=SimpleNamespace(master="spark://one:7077"))

    start = SessionStart(make, end=lambda: happened.append("ends"), is_over=lambda each: each.number in over)  # type: ignore[attr-defined]
    session: Any = start.get()
    assert session.number == 0
    over.append(0)
    together = [threading.Thread(target=start.get) for _ in range(8)]
    for each in together:
        each.start()
    for each in together:
        each.join(30)
    session = start.get()
    assert session.number == 1
    assert happened == ["starts 0", "ends", "starts 1"]
