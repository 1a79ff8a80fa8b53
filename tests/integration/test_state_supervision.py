"""Supervision of streams whose state is in SeaweedFS, by machines that cannot see each other's processes.

The drivers only beat and hold the lease. Another machine is a process with another host's name and another boot.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from jobs.base.system.processes import session_members
from jobs.clients.state_store.store import StateStore
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.settings import load_settings
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.control_request import read_control
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, read_heartbeat
from jobs.streaming.supervision.documents.keeper_record import read_keeper
from jobs.streaming.supervision.documents.launches import read_launch
from jobs.streaming.supervision.processes.actual import ActualState, read_actual
from jobs.streaming.supervision.processes.termination import Timeouts
from tests.helpers.faulty_proxy import faulty_proxy
from tests.helpers.object_server import ObjectServer
from tests.helpers.services import objects_state
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import STREAM

pytestmark = pytest.mark.integration
ROOT = Path(__file__).resolve().parents[2]
STANDIN = (sys.executable, "-m", "tests.helpers.standin_driver")
TIMEOUTS = Timeouts(grace_seconds=60, term_seconds=10, first_heartbeat_seconds=180, ready_seconds=120, lock_seconds=90)
WHY = ("a test", "supervisor")
TTL_SECONDS = 4.0
ENSURE = """
import sys
from pathlib import Path
from jobs.streaming.supervision.control.stream_control import StreamControl
command = (sys.executable, "-m", "tests.helpers.standin_driver")
control = StreamControl(Path(sys.argv[1]), Path(sys.argv[2]), "payments", command=command)
print(control.ensure_running("a test", "there").sentence)
"""


class Machine:
    """One of the machines of a deployment: its settings differ in the folder alone."""

    def __init__(self, home: Path, name: str, state: dict[str, object]) -> None:
        self.home, self.file = home, home / f"{name}.yaml"
        (home / "streams").mkdir(parents=True, exist_ok=True)
        (home / "streams" / "payments.yaml").write_text(STREAM.format(stream="payments", topic="payments.v1"))
        self.file.write_text(
            yaml.safe_dump({"state": state | {"folder": str(home / name)}, "lease_ttl": f"{TTL_SECONDS:.0f}s"})
        )

    def folder(self) -> StreamFolder:
        return stream_folder(load_settings(self.file, home=self.home), "payments")

    def store(self) -> StateStore:
        return self.folder().store

    def control(self) -> StreamControl:
        return StreamControl(self.home, self.file, "payments", timeouts=TIMEOUTS, command=STANDIN)

    def beat(self) -> Heartbeat:
        beat = read_heartbeat(self.store())
        assert beat is not None
        return beat

    def actual(self) -> ActualState:
        return read_actual(self.store(), "payments")

    def end(self) -> None:
        keeper, beat = read_keeper(self.store().local), read_heartbeat(self.store())
        for pid in [*([keeper.pid] if keeper else []), *(session_members(beat.pid) if beat else [])]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def machines(tmp_path: Path, objects: ObjectServer) -> Iterator[tuple[Machine, Machine]]:
    state = objects_state(objects).model_dump(mode="json", exclude_none=True)
    here, there = Machine(tmp_path, "here", state), Machine(tmp_path, "there", state)
    yield here, there
    for machine in (there, here):
        machine.end()


@pytest.fixture
def elsewhere(tmp_path: Path) -> list[str]:
    """What runs a command as on another machine."""
    boot = tmp_path / "boot"
    boot.write_text("the-boot-of-another-machine")
    script = f'mount --bind {boot} /proc/sys/kernel/random/boot_id && hostname machine-b && exec "$@"'
    for user in ([], ["-r"]):
        words = ["unshare", *user, "-m", "-u", "sh", "-c", script, "sh"]
        if not shutil.which("unshare"):
            break
        if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
            return words
    pytest.skip("needs a machine on which namespaces can be made")


def start_there(there: Machine, elsewhere: list[str], how: str) -> str:
    done = subprocess.run(
        [*elsewhere, sys.executable, "-c", ENSURE, str(there.home), str(there.file)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "STANDIN": how},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_driver_whose_machine_vanishes_is_followed_by_one_of_another(
    machines: tuple[Machine, Machine], elsewhere: list[str]
) -> None:
    here, there = machines
    assert "payments runs" in start_there(there, elsewhere, "lands")
    first = here.beat()
    assert (first.host, first.attempt) == ("machine-b", 1)
    driver = here.actual().driver
    assert driver is not None and not driver.local, "its number says nothing here"
    assert "payments runs already: process" in here.control().ensure_running(*WHY).sentence
    os.kill(first.pid, signal.SIGKILL)
    killed = time.monotonic()
    assert here.actual().lease.state == "live", "it has not been seen unchanged for so long"
    wait_for(lambda: here.actual().lease.state == "expired", "its lease to run out")
    assert time.monotonic() - killed >= TTL_SECONDS - 2
    # The heartbeat of another machine counts for half a minute from when it was last seen to change.
    wait_for(lambda: here.actual().driver is None, "its heartbeat to be old", 60)
    before = time.monotonic()
    assert "payments runs: process" in here.control().ensure_running(*WHY).sentence
    second = here.beat()
    assert (second.attempt, second.epoch) == (2, first.epoch + 1)
    assert time.monotonic() - before < 150
    launch = read_launch(here.store())
    assert launch is not None and launch.attempt == 2


def test_a_driver_there_is_stopped_from_here(machines: tuple[Machine, Machine], elsewhere: list[str]) -> None:
    here, there = machines
    start_there(there, elsewhere, "")
    assert here.control().stop("maintenance", "ann").sentence == "payments is stopped: attempt 1 ended on machine-b."
    assert read_control(there.store()).by == "ann"


def test_a_keeper_waits_for_a_store_that_is_away(
    tmp_path: Path, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN", "kept,lands")
    with faulty_proxy(objects.port) as proxy:
        state = objects_state(objects, endpoint=f"http://127.0.0.1:{proxy.port}").model_dump(
            mode="json", exclude_none=True
        )
        here = Machine(tmp_path, "here", state)
        here.control().start(*WHY)
        first = here.beat()
        wait_for(lambda: (note := read_keeper(here.store().local)) is not None and note.lives(), "its keeper")
        keeper = read_keeper(here.store().local)
        assert keeper is not None
        command, mapped = Path(f"/proc/{keeper.pid}/cmdline"), Path(f"/proc/{keeper.pid}/maps")
        assert os.environ["FRAZIL_TEST_S3_SECRET"].encode() not in command.read_bytes()
        assert "_ssl" not in mapped.read_text(), "it has loaded no client"
        proxy.arm("refused", 10**9)
        os.kill(first.pid, signal.SIGKILL)
        output = here.folder().root / "logs" / "driver.out"
        wait_for(lambda: "waits: " in output.read_text(), "the keeper to find the store away")
        proxy.arm("", 0)
        wait_for(lambda: here.beat().attempt == 2 and here.beat().state == "running", "the next driver")
        launch = read_launch(here.store())
        assert launch is not None and (launch.attempt, launch.kept) == (2, 1)
        monkeypatch.delenv("STANDIN")
        here.control().stop(*WHY)
        here.end()
