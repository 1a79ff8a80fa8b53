"""Whether a JVM that does not answer, and workers that work, are seen: on real threads and processes, without Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time

import pytest

from jobs.stream.progress import WorkLog
from jobs.stream.watches import JvmWatch
from jobs.system import cpu
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
