"""Services that end are started again, at growing pauses and not for ever; a deployment has one set of them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.errors import FrazilError
from jobs.system.processes import is_alive, start_time
from orchestration.cli.dev import services as services_module
from orchestration.cli.dev.children import Child
from orchestration.cli.dev.services import MOST_FAILURES, STEADY_SECONDS, DagsterServices, Restarts
from orchestration.cli.dev.services_claim import ServicesClaim
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import deployment_in

ROOT = Path(__file__).resolve().parents[5]


def test_pauses_grow_and_it_is_given_up() -> None:
    restarts, now, pauses = Restarts(), 1000.0, []
    for _ in range(MOST_FAILURES):
        pause = restarts.ended(3.0, now)
        pauses.append(pause)
        if pause is None:
            break
        assert not restarts.take_due(now + pause - 0.01)
        assert restarts.take_due(now + pause)
        assert not restarts.take_due(now + pause), "it is started once"
        now += 60
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, None]
    assert not restarts.take_due(now + 1e9)


def test_a_service_that_ran_steadily_starts_the_count_anew() -> None:
    restarts = Restarts()
    for _ in range(MOST_FAILURES - 1):
        restarts.ended(3.0, 0.0)
    assert restarts.ended(STEADY_SECONDS, 0.0) == 1.0
    assert restarts.ended(STEADY_SECONDS - 1, 0.0) == 2.0
    assert all(restarts.ended(STEADY_SECONDS, 0.0) == 1.0 for _ in range(100))


class Small(DagsterServices):
    """Its services are small processes of this Python; `script` is what the webserver does."""

    script: str = "import time; time.sleep(600)"

    def start_webserver(self) -> Child:
        return self._start("webserver", ["timeit", "-n1", "-r1", self.script])

    def start_daemon(self) -> Child:
        return self._start("daemon", ["timeit", "-n1", "-r1", "import time; time.sleep(600)"])


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(services_module, "make_instance", lambda home: None)
    made = Small(Deployment.at(deployment_in(tmp_path)))
    yield made
    made.stop()


def test_one_that_is_killed_is_back_and_the_other_does_not_notice(
    services: Small, capsys: pytest.CaptureFixture[str]
) -> None:
    services.start()
    services.came_up()
    services.check()
    first = dict(services._serving)
    os.kill(first["webserver"].pid, signal.SIGKILL)
    wait_for(lambda: services.check() or services._serving["webserver"] is not first["webserver"], "its restart", 30)
    assert services._serving["daemon"] is first["daemon"]
    assert first["daemon"].ending() is None
    said = capsys.readouterr().err
    assert said.count("Dagster's webserver was ended by SIGKILL; it is started again in 1 s") == 1
    assert (services.home / "webserver.log.previous").exists()
    pids = [child.pid for child in services._serving.values()]
    services.stop()
    assert [pid for pid in pids if start_time(pid)] == []


def test_one_that_ends_again_and_again_is_given_up_with_a_sentence(
    services: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestration.cli.dev.services._FIRST_PAUSE_SECONDS", 0.01)
    services.start()
    services.came_up()
    services.script = "print('no such port'); raise SystemExit(1)"
    os.kill(services._serving["webserver"].pid, signal.SIGKILL)
    with pytest.raises(FrazilError) as caught:
        wait_for(services.check, "it to be given up", 60)
    assert f"Dagster's webserver ended with exit status 1, for the {MOST_FAILURES}th time in a row" in str(caught.value)
    assert "    no such port" in caught.value.message
    assert caught.value.fix == f"read {services.home}/webserver.log; then frazil dev"


def test_one_that_never_came_up_is_an_error_at_once(services: Small) -> None:
    services.script = "print('bad dagster.yaml'); raise SystemExit(1)"
    services.start()
    with pytest.raises(FrazilError, match="Dagster's webserver ended with exit status 1"):
        wait_for(services.check, "its end", 30)


# Claims the services of a folder, notes a process of its own among them, says so, and waits.
CLAIMANT = textwrap.dedent("""
    import subprocess, sys, time
    from pathlib import Path
    from orchestration.cli.dev.services_claim import ServicesClaim
    claim = ServicesClaim(Path(sys.argv[1]))
    claim.take()
    claim.note_url("http://127.0.0.1:3000")
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    claim.note({"daemon": left.pid})
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
        ServicesClaim(tmp_path).take()
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
    process.wait(30)
    assert is_alive(left, started)
    claim = ServicesClaim(tmp_path)
    assert claim.take() == {"daemon": left}
    assert not is_alive(left, started)
    assert claim.take() == {}
    claim.release()
    again = ServicesClaim(tmp_path)
    assert again.take() == {}
    again.release()


def test_a_stranger_with_the_pid_of_a_service_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as stranger:
        (tmp_path / "services.json").write_text(
            f'{{"pid": 1, "since": {time.time()}, "url": "", '
            f'"services": {{"daemon": {{"pid": {stranger.pid}, "started": "0"}}}}}}'
        )
        claim = ServicesClaim(tmp_path)
        assert claim.take() == {}
        claim.release()
        assert stranger.poll() is None
        stranger.kill()


def test_a_claim_that_was_cut_off_or_is_of_another_version_is_no_obstacle(tmp_path: Path) -> None:
    for text in ("", "{", '{"pid": "x"}', "[]", '{"pid": 1, "since": 1.0, "more": {}}'):
        (tmp_path / "services.json").write_text(text)
        claim = ServicesClaim(tmp_path)
        assert claim.take() == {}
        claim.release()
