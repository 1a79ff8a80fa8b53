"""Services of a deployment: what is told if one ends, the lock that one process holds, and its port."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.base.errors import FrazilError
from jobs.base.system.ports import free_ports
from jobs.base.system.processes import is_alive, start_time
from orchestration.cli.common.dagster_instance import DATABASES
from orchestration.cli.local.dev.child_process import Child
from orchestration.cli.local.dev.services import DagsterServices, PortClaim, ServicesLock
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import deployment_in


class Small(DagsterServices):
    """Its services are small processes of this Python; `script` is what the webserver does."""

    script: str = "import time; time.sleep(600)"

    def start_code_server(self) -> Child | None:
        return None

    def start_webserver(self) -> Child:
        return self._start("webserver", ["timeit", "-n1", "-r1", self.script])

    def start_daemon(self) -> Child:
        return self._start("daemon", ["timeit", "-n1", "-r1", "import time; time.sleep(600)"])


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Small]:
    made = Small(Deployment.at(deployment_in(tmp_path)))
    # An instance that is there already, of which its services read nothing.
    for name in ("dagster.yaml", *DATABASES):
        (made.home / name).parent.mkdir(parents=True, exist_ok=True)
        (made.home / name).touch()
    yield made
    made.stop()


def test_one_that_ends_is_told_with_the_end_of_its_log(services: Small) -> None:
    services.script = "print('bad dagster.yaml'); raise SystemExit(1)"
    services.start()
    with pytest.raises(FrazilError, match="Dagster's webserver ended with exit status 1") as caught:
        wait_for(services.check, "its end", 30)
    assert "    bad dagster.yaml" in caught.value.message
    assert caught.value.fix == f"read {services.home}/webserver.log; then frazil dev"
    pids = [child.pid for child in services._serving.values()]
    services.stop()
    assert [pid for pid in pids if start_time(pid)] == []


ROOT = Path(__file__).resolve().parents[5]


# Claims the services of a folder, notes a process of its own among them, says so, and waits.
CLAIMANT = textwrap.dedent("""
    import subprocess, sys, time
    from pathlib import Path
    from orchestration.cli.local.dev.services import ServicesLock
    claim = ServicesLock(Path(sys.argv[1]))
    claim.acquire()
    claim.record_url("http://127.0.0.1:3000")
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    claim.record_services({"daemon": left.pid})
    print(left.pid, flush=True)
    time.sleep(600)
""")


@pytest.fixture
def claimant(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen(
        [sys.executable, "-c", CLAIMANT, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        left = int(process.stdout.readline())
        yield process, left
        process.kill()
    if start_time(left):
        os.kill(left, signal.SIGKILL)


def test_a_second_claimant_is_told_who_runs_them(tmp_path: Path, claimant: tuple[subprocess.Popen[str], int]) -> None:
    process, left = claimant
    with pytest.raises(FrazilError) as caught:
        ServicesLock(tmp_path).acquire()
    assert re.fullmatch(
        rf"This deployment's services run already: process {process.pid}, since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC, "
        r"Dagster at http://127.0.0.1:3000\.",
        caught.value.message,
    )
    assert caught.value.fix == (f"open http://127.0.0.1:3000; or end that one first, with Ctrl-C or kill {process.pid}")
    assert start_time(left), "a refused claim ends nothing"


def test_what_a_killed_claimant_left_is_ended_by_the_next(
    tmp_path: Path, claimant: tuple[subprocess.Popen[str], int]
) -> None:
    process, left = claimant
    started = start_time(left)
    process.kill()
    process.wait(300)
    assert is_alive(left, started)
    claim = ServicesLock(tmp_path)
    assert claim.acquire() == {"daemon": left}
    assert not is_alive(left, started)
    assert claim.acquire() == {}
    claim.release()
    again = ServicesLock(tmp_path)
    assert again.acquire() == {}
    again.release()


def test_a_stranger_with_the_pid_of_a_service_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        (tmp_path / "services.json").write_text(
            f'{{"pid": 1, "since": {time.time()}, "url": "", '
            f'"services": {{"daemon": {{"pid": {stranger.pid}, "started": "0"}}}}}}'
        )
        claim = ServicesLock(tmp_path)
        assert claim.acquire() == {}
        claim.release()
        assert stranger.poll() is None
        stranger.kill()


def test_a_claim_that_was_cut_off_or_is_of_another_version_is_no_obstacle(tmp_path: Path) -> None:
    for text in ("", "{", '{"pid": "x"}', "[]", '{"pid": 1, "since": 1.0, "more": {}}'):
        (tmp_path / "services.json").write_text(text)
        claim = ServicesLock(tmp_path)
        assert claim.acquire() == {}
        claim.release()


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_whoever_comes_second_gets_another_one_though_nobody_listens_yet() -> None:
    (usual,) = free_ports(1)
    first, second = PortClaim(usual=usual), PortClaim(usual=usual)
    assert first.port == usual != second.port
    # The next one, and not any that the system gives: it gives those to others too, before the webserver listens.
    assert first.port < second.port < first.port + 100
    with pytest.raises(FrazilError, match=f"Port {first.port} is taken"):
        PortClaim(first.port)
    port = first.port
    first.release()
    third = PortClaim(port)
    assert third.port == port
    second.release()
    third.release()


def test_a_port_that_somebody_listens_on_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(FrazilError, match=f"Port {port} is taken"):
            PortClaim(port)
