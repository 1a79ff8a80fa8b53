"""A stream under `frazil dev`, while everything that can die is killed with SIGKILL, one after the other.

One test, as a start of Dagster's services is ten seconds of CPU: what is killed here is killed in one deployment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.keeper_record import find_keeper
from jobs.supervise.launches import Launch, read_launch
from jobs.system.processes import session_members
from tests.helpers.listening import Listening, listening
from tests.helpers.waiting import wait_for
from tests.integration.marked import Marked
from tests.integration.supervised_stream import SOON, SupervisedStream, drivers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

# Longer than the lease.
AWAY_SECONDS = 15


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SupervisedStream]:
    made = SupervisedStream(tmp_path)
    try:
        made.start_producing()
        yield made
    finally:
        made._enough.set()
        made.stream.control().stop("the test ends", "tester")
        made.broker.stop()
    assert drivers(made.stream) == []


def test_one_driver_nothing_lost_nothing_doubled_whatever_is_killed(world: SupervisedStream) -> None:
    # `frazil dev` starts the stream, and is the only one in its deployment.
    with Marked(world.stream.home, ["dev"]) as dev:
        first = world.works(attempt=1)
        wait_for(lambda: world.up(dev), "the services", SOON)
        assert_only_loopback(world, dev, first)
        assert_without_pandas(first.pid)
        assert_another_is_refused(world, dev)
        wait_for(lambda: world.ui_says_alive(1), "the UI to tell of attempt 1", SOON)

        # The driver: its keeper starts another, and Dagster is told, not asked.
        runs = len(world.control_runs())
        os.killpg(first.pid, signal.SIGKILL)
        second = world.works(attempt=2)
        assert session_members(first.pid) == []
        wait_for(lambda: world.ui_says_alive(2), "the UI to tell of attempt 2", SOON)
        assert len(world.control_runs()) == runs
        assert [each.why for each in newest(world).kept_newest] == [
            f"attempt 1 (process {first.pid}) ended without a last word"
        ]

        # The webserver, then the daemon, with its code server: each is started again. The stream does not notice, and
        # they find it again.
        url = getattr(world.claim(), "url", None)
        for name in ("webserver", "daemon"):
            before = world.service(name)
            os.kill(before, signal.SIGKILL)
            wait_for(lambda name=name, before=before: world.service(name) != before, f"another {name}")
            wait_for(lambda: world.up(dev), f"the services after the end of the {name}", SOON)
        wait_for(lambda: ticked_after(world), "a tick after the end of the daemon", SOON)
        assert getattr(world.claim(), "url", None) == url
        assert len(world.control_runs()) == runs
        assert world.works(attempt=2).pid == second.pid

        # `frazil dev` itself: the services and the stream run on.
        left = {world.service(name) for name in ("webserver", "daemon")}
        os.kill(dev.process.pid, signal.SIGKILL)
        _, _, errors = dev.finish(30)
        for name in ("webserver", "daemon"):
            assert errors.count(f"Dagster's {name} was ended by SIGKILL; it is started again in 1 s") == 1

    # The next one ends what is left of the services, has some of its own, and finds the stream.
    with Marked(world.stream.home, ["dev"]) as dev_again:
        wait_for(lambda: world.up(dev_again), "the next one's services", SOON)
        assert not left & set(dev.processes())
        assert world.works(attempt=2).pid == second.pid

        # The code servers, of which the daemon gets itself others in its own time, and the broker for some time.
        for pid in dev_again.processes("api grpc"):
            os.kill(pid, signal.SIGKILL)
        status = world.broker.status()
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)
        back = threading.Timer(AWAY_SECONDS, world.broker.start)
        back.start()
        assert not ticked_after(world)
        back.join()
        assert world.works(attempt=2).pid == second.pid
        wait_for(lambda: ticked_after(world), "a tick after the end of the code servers", SOON)

        # The driver and its keeper; then the worker of the control run that has just launched a driver, before that
        # one's first beat.
        keeper = find_keeper(world.stream.folder().store, 2)
        assert keeper is not None
        os.kill(keeper.pid, signal.SIGKILL)
        os.killpg(second.pid, signal.SIGKILL)
        wait_for(lambda: newest(world).attempt == 3, "attempt 3 to be launched", SOON)
        workers = dev_again.processes("multiprocessing.spawn")
        assert workers, "nobody launched it"
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        third = world.wait("a driver to run", lambda beat: beat.attempt >= 3 and beat.state == "running", SOON)
        world.works(third.attempt)

        world.stop_producing()
        world.stream.wait_until_landed()
        world.stream.assert_exactly_once()
        wait_for(lambda: unfinished(world) == [], "the end of the control runs", SOON)

        # When it ends, the stream runs on.
        dev_again.interrupt()
        status, _, errors = dev_again.finish(60)
    assert status == 130
    assert "Ended what a killed `frazil dev` had left running: " in errors
    assert "Running on: watched." in errors
    assert drivers(world.stream) == [third.pid]
    assert dev_again.living("dagster") == []
    wait_for(lambda: dev.living("dagster") == [], "the end of what the killed one had started")


def assert_without_pandas(driver: int) -> None:
    """Great Expectations and its pandas are in no process of a driver: not in its own, nor in Spark's workers."""
    seen = 0
    for pid in session_members(driver):
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{pid}/maps").read_text()
            seen += "libpython" in maps or "/lib-dynload/" in maps
            assert "/pandas/" not in maps and "great_expectations" not in maps, pid
    assert seen >= 2, "the driver and a worker"


def assert_only_loopback(world: SupervisedStream, dev: Marked, beat: Heartbeat) -> None:
    """No other machine reaches any process of the deployment: broker, driver, its UI and metrics, Dagster."""

    def seen() -> list[Listening]:
        return listening([*dev.processes(), world.broker.status().pid or 0])

    wait_for(lambda: any("dagster_webserver" in each.command for each in seen()), "the webserver to listen", SOON)
    found = seen()
    assert [each for each in found if each.exposed] == []
    told = [beat.ui_url, beat.metrics_url, f"//{world.stream.address}"]
    assert {urlsplit(url or "").port for url in told} <= {each.port for each in found}


def assert_another_is_refused(world: SupervisedStream, dev: Marked) -> None:
    """A second `frazil dev` says who runs the services, and ends nothing."""
    status, output, errors = Marked(world.stream.home, ["dev"]).finish()
    assert (status, output) == (1, "")
    assert f"Error: This deployment's services run already: process {dev.process.pid}, since " in errors
    noted = world.claim()
    assert noted is not None
    assert f"Dagster at {noted.url}." in errors
    assert world.up(dev), "the refused one ends nothing"


def ticked_after(world: SupervisedStream) -> bool:
    """Whether the supervisor has looked since this was first asked; asks anew after each success."""
    path = world.stream.settings().state / "supervisor.json"
    since = getattr(world, "_asked", None)
    now = path.stat().st_mtime if path.exists() else 0.0
    if since is None:
        world._asked = now  # type: ignore[attr-defined]
        return False
    if now > since:
        world._asked = None  # type: ignore[attr-defined]
        return True
    return False


def unfinished(world: SupervisedStream) -> list[str]:
    ended = ("SUCCESS", "FAILURE", "CANCELED")
    return [f"{run['runId']}: {run['status']}" for run in world.control_runs() if run["status"] not in ended]


def newest(world: SupervisedStream) -> Launch:
    launch = read_launch(world.stream.folder().store)
    assert launch is not None
    return launch
