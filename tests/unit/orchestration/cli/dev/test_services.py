"""Services that end are started again, at growing pauses and not for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.errors import FrazilError
from jobs.system.processes import start_time
from orchestration.cli.dagster_instance import DATABASES
from orchestration.cli.dev.child_process import Child
from orchestration.cli.dev.services import MOST_FAILURES, STEADY_SECONDS, DagsterServices, Restarts
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import deployment_in


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
def services(tmp_path: Path) -> Iterator[Small]:
    made = Small(Deployment.at(deployment_in(tmp_path)))
    # An instance that is there already, of which its services read nothing.
    for name in ("dagster.yaml", *DATABASES):
        (made.home / name).parent.mkdir(parents=True, exist_ok=True)
        (made.home / name).touch()
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


def test_one_that_ends_again_and_again_is_given_up_with_a_sentence(services: Small) -> None:
    services._restarts["webserver"] = Restarts(first_pause_seconds=0.01)
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
