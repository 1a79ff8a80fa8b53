"""Whether a JVM that does not answer, and workers that work, are seen: on real threads and processes, without Spark."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jobs.base.system import cpu
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.table_health import (
    KEY,
    TableHealth,
    read_health,
    write_health,
)
from jobs.config.services.trigger import Every, Trigger
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.driver.watch.watches import (
    LOOK_SECONDS,
    HealthWatch,
    JvmWatch,
    SecretWatch,
)
from tests.helpers.memory_store import InMemoryStore
from tests.helpers.waiting import wait_for

BUSY = """
import subprocess, sys
worker = '''
import time
while True:
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    time.sleep(0.05)
'''
child = subprocess.Popen([sys.executable, "-c", worker])
print(child.pid, flush=True)
child.wait()
"""


def test_a_question_that_is_not_answered_is_told_with_its_time_until_it_is() -> None:
    go, asked = threading.Event(), threading.Event()

    def ask() -> None:
        asked.set()
        go.wait(300)

    work = WorkLog(time.time(), unanswered_seconds=0.2)
    watch = JvmWatch(work, ask, local=False, every_seconds=0.02).start()
    assert asked.wait(120)
    assert work.work(time.time()).unanswered_since is None
    wait_for(lambda: work.work(time.time()).unanswered_since is not None, "the silence to be told")
    since = work.work(time.time()).unanswered_since
    assert since is not None
    assert 0 < time.time() - since < 60
    assert work.work(time.time()).got_on_at is None, "tasks on other hosts are not seen"
    go.set()
    wait_for(lambda: work.work(time.time()).unanswered_since is None, "the answer", 10)
    watch.end()


def test_a_jvm_that_is_gone_is_no_silent_one() -> None:
    asked = threading.Semaphore(0)

    def refuse() -> None:
        asked.release()
        raise ConnectionRefusedError

    work = WorkLog(time.time(), unanswered_seconds=0.0)
    watch = JvmWatch(work, refuse, local=False, every_seconds=0.01).start()
    for _ in range(5):
        assert asked.acquire(timeout=120)
    watch.end()
    assert work.work(time.time()).unanswered_since is None


@pytest.mark.skipif(cpu.grandchildren_cpu_seconds() is None, reason="needs /proc")
def test_workers_that_work_are_seen_and_stopped_ones_are_not() -> None:
    work = WorkLog(time.time())

    def made_progress() -> float:
        return work.work(time.time()).got_on_at or 0.0

    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True) as jvm:
        assert jvm.stdout is not None
        worker = int(jvm.stdout.readline())
        watch = JvmWatch(work, lambda: None, local=True, every_seconds=0.3).start()
        try:
            wait_for(lambda: made_progress() > 0, "the first look", 20)
            first = made_progress()
            wait_for(lambda: made_progress() > first + 0.5, "work to be seen", 20)
            subprocess.run(["kill", f"-{signal.SIGSTOP.value}", str(worker)], check=True)
            settled: list[float] = []

            def stands_still() -> bool:
                settled.append(made_progress())
                return time.time() - made_progress() > 2.0

            wait_for(stands_still, "the work to stand still", 30)
        finally:
            watch.end()
            subprocess.run(["kill", "-9", str(worker)], check=True)


def test_of_a_shared_jvm_the_ends_of_its_own_tasks_are_seen_and_its_silence_too() -> None:
    work = WorkLog(time.time(), unanswered_seconds=0.0)
    ended, hangs, hung = [(1, 0)], threading.Event(), threading.Event()

    def tasks_ended() -> tuple[int, int]:
        if hung.is_set():
            hangs.wait(300)
        return ended[-1]

    watch = JvmWatch(work, lambda: None, local=True, tasks_ended=tasks_ended, every_seconds=0.02).start()
    try:
        wait_for(lambda: work.work(time.time()).got_on_at is not None, "the first look")
        before = work.work(time.time()).got_on_at
        ended.append((1, 1))
        wait_for(lambda: work.work(time.time()).got_on_at != before, "the end of a task to be seen")
        hung.set()
        wait_for(lambda: work.work(time.time()).unanswered_since is not None, "the silence to be seen")
    finally:
        hangs.set()
        watch.end()


def test_another_secret_is_seen_and_what_is_unreadable_for_a_moment_is_none(tmp_path: Path) -> None:
    now = 0.0
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("a\n")
    two.write_text("b\n")
    watch = SecretWatch([str(one), str(two)], lambda: now)
    for content in ("b", "b\n", "", "b"):
        two.write_text(content)
        assert not watch.changed(now=True)
    two.unlink()
    assert not watch.changed(now=True)
    two.write_text("c")
    assert not watch.changed()
    now = LOOK_SECONDS
    assert watch.changed()
    two.write_text("b")
    assert watch.changed(), "what was begun with the other one is not known"


def test_a_file_that_comes_later_counts(tmp_path: Path) -> None:
    watch = SecretWatch([str(tmp_path / "late")])
    (tmp_path / "late").write_text("a")
    assert watch.changed(now=True)


def test_without_files_there_is_nothing_to_watch() -> None:
    assert not SecretWatch([]) and not SecretWatch([]).changed(now=True)


SLOWER = Every.model_validate({"every": "10s", "while_red": "60s"})
NOW = 1_800_000_000.0


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize(
    ("score", "age", "red"),
    [(39, 0.0, True), (40, 0.0, False), (100, 0.0, False), (0, 10_000.0, True), (0, 11_000.0, False), (0, -9e9, True)],
)
def test_what_counts_as_red(score: int, age: float, red: bool) -> None:
    assert TableHealth(score, NOW - age).red(NOW) is red


def test_a_measurement_is_read_back_and_a_damaged_one_is_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert read_health(store) is None
    write_health(store, TableHealth(31, NOW))
    assert read_health(store) == TableHealth(31, NOW)
    store.put(KEY, b"{half")
    assert read_health(store) is None


def test_it_is_looked_up_each_minute_and_said_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    store, clock = InMemoryStore(), Clock()
    watch = HealthWatch("payments", SLOWER, lambda: store, clock=clock, now=lambda: NOW)
    assert not watch.red()
    write_health(store, TableHealth(31, NOW))
    assert not watch.red(), "within the minute"
    clock.seconds += 60
    with caplog.at_level("INFO"):
        assert watch.red() and watch.red()
    assert "has a health of 31 of 100; it lands less often from here on" in caplog.text

    def away() -> None:
        raise OSError(errno.EIO, "no answer")

    store.before["get"] = away
    clock.seconds += 60
    assert watch.red(), "as it was known last"
    store.before.clear()
    write_health(store, TableHealth(90, NOW))
    clock.seconds += 60
    with caplog.at_level("INFO"):
        assert not watch.red()
    assert "it lands as often as ever again" in caplog.text


@pytest.mark.parametrize("trigger", [Every(), "as_fast_as_possible", "available_now"])
def test_who_does_not_ask_for_it_looks_at_nothing(trigger: Trigger) -> None:
    def never() -> InMemoryStore:
        raise AssertionError

    assert not HealthWatch("payments", trigger, never).red()
