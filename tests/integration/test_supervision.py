"""A stream under `frazil dev`, while daemon, broker, keeper and driver are killed with SIGKILL, one after the other.

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

from jobs.base.system.processes import session_members
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.keeper_record import find_keeper
from tests.helpers.listening import Listening, listening
from tests.helpers.waiting import wait_for
from tests.integration.marked import Marked
from tests.integration.supervised_stream import SOON, SupervisedStream, drivers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1800)]

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
    # `frazil dev` starts the stream.
    with Marked(world.stream.home, ["dev"]) as dev:
        first = world.works(attempt=1)
        wait_for(lambda: world.up(dev), "the services", SOON)
        assert_only_loopback(world, dev, first)
        assert_without_pandas(first.pid)
        wait_for(lambda: world.ui_says_alive(1), "the UI to tell of attempt 1", SOON)

        # The daemon: `frazil dev` ends, names the log, and the stream does not notice.
        url = getattr(world.claim(), "url", None)
        os.kill(world.service("daemon"), signal.SIGKILL)
        status, _, errors = dev.finish(300)
        assert status == 1
        assert "daemon" in errors and ".log" in errors
        assert world.works(attempt=1).pid == first.pid

    # Started again, it finds the stream and starts no other driver.
    with Marked(world.stream.home, ["dev"]) as dev:
        wait_for(lambda: world.up(dev), "the services after the end of the daemon", SOON)
        wait_for(lambda: ticked_after(world), "a tick after the end of the daemon", SOON)
        assert getattr(world.claim(), "url", None) == url
        runs = len(world.control_runs())
        assert world.works(attempt=1).pid == first.pid

        # The broker, for some time.
        status = world.broker.status()
        assert status.pid is not None
        os.kill(status.pid, signal.SIGKILL)
        back = threading.Timer(AWAY_SECONDS, world.broker.start)
        back.start()
        back.join()
        assert world.works(attempt=1).pid == first.pid

        # The driver and its keeper: a control run of Dagster starts another.
        keeper = find_keeper(world.stream.folder().store, 1)
        assert keeper is not None
        os.kill(keeper.pid, signal.SIGKILL)
        os.killpg(first.pid, signal.SIGKILL)
        second = world.works(attempt=2)
        assert session_members(first.pid) == []
        assert len(world.control_runs()) > runs

        world.stop_producing()
        world.stream.wait_until_landed()
        world.stream.assert_exactly_once()
        wait_for(lambda: unfinished(world) == [], "the end of the control runs", SOON)

        # When it ends, the stream runs on.
        dev.interrupt()
        status, _, errors = dev.finish(300)
    assert status == 130
    assert "Running on: watched." in errors
    assert drivers(world.stream) == [second.pid]
    assert dev.living("dagster") == []


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
