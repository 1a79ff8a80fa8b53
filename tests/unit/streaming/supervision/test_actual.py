"""Which process counts as a stream's driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import msgspec
import pytest

from jobs.clients.state_store.lease import Lease
from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.heartbeat import write_heartbeat
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.streaming.supervision.processes.actual import read_actual
from tests.helpers.waiting import wait_for
from tests.unit.streaming.supervision.worlds import IMPATIENT, WHY, World


def test_a_driver_is_found_by_its_note_and_by_its_beat(world: World) -> None:
    world.control().start(*WHY)
    pid = world.beat().pid
    for name in ("heartbeat.json", "process.json"):
        kept = (world.folder() / name).read_bytes()
        (world.folder() / name).unlink()
        driver = read_actual(LocalStore(world.folder()), "payments").driver
        assert driver is not None
        assert (driver.pid, driver.local) == (pid, True)
        (world.folder() / name).write_bytes(kept)


def test_a_pid_that_belongs_to_somebody_else_by_now_is_no_driver(world: World) -> None:
    world.control().start(*WHY)
    world.control().stop(*WHY)
    (world.folder() / "process.json").unlink()
    reused = msgspec.structs.replace(world.beat(), pid=os.getpid(), state="running")
    write_heartbeat(LocalStore(world.folder()), reused)
    assert read_actual(LocalStore(world.folder()), "payments").driver is None
    assert world.control().stop(*WHY).sentence == "payments is stopped already by tester@here: a test."


@pytest.mark.parametrize("host", [None, "another-container"])
def test_a_beat_from_elsewhere_counts_for_some_time(world: World, host: str | None) -> None:
    world.control().start(*WHY)
    here = world.beat()
    world.control().stop(*WHY)
    (world.folder() / "process.json").unlink()
    boot = here.boot if host else "another kernel"
    there = msgspec.structs.replace(here, host=host or here.host, boot=boot, state="running", beat_wall=time.time())
    write_heartbeat(LocalStore(world.folder()), there)
    driver = read_actual(LocalStore(world.folder()), "payments").driver
    assert driver is not None
    assert not driver.local
    write_heartbeat(
        LocalStore(world.folder()), msgspec.structs.replace(there, beat=there.beat - 100, beat_wall=time.time() - 100)
    )
    assert read_actual(LocalStore(world.folder()), "payments").driver is None


def test_a_frozen_driver_makes_room(world: World) -> None:
    world.write("payments")
    (world.home / "frazil.yaml").write_text("lease_ttl: 1s\n")
    world.control().start(*WHY)
    frozen = world.beat()
    os.kill(frozen.pid, signal.SIGSTOP)
    lease = Lease(LocalStore(world.folder()), "payments", 1.0)
    wait_for(lambda: (record := lease.read()) is None or not record.held(), "the lease to run out")
    write_heartbeat(LocalStore(world.folder()), msgspec.structs.replace(frozen, beat=frozen.beat - 60))
    driver = world.control().observe().driver
    assert driver is not None
    assert driver.frozen
    timeouts = replace(IMPATIENT, first_heartbeat_seconds=120, ready_seconds=120)
    done = world.control(timeouts=timeouts).ensure_running("it does not beat", "supervisor")
    assert done.heartbeat is not None
    assert done.heartbeat.attempt == 2
    assert "Attempt 1 was frozen and was killed." in done.sentence
    note = read_launched_process(LocalStore(world.folder()))
    assert note is not None
    assert world.living() == [note.pid]


TOGETHER = """
import sys, threading
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.clients.state_store.local_store import LocalStore
from pathlib import Path

sys.setswitchinterval(1e-6)
start = threading.Barrier(8)
def read():
    start.wait()
    read_heartbeat(LocalStore(Path(sys.argv[1])))
threads = [threading.Thread(target=read) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_threads_that_read_for_the_first_time_at_once_do_not_crash(world: World) -> None:
    world.control().start(*WHY)
    for _ in range(5):
        assert subprocess.run([sys.executable, "-c", TOGETHER, str(world.folder())], check=False).returncode == 0
