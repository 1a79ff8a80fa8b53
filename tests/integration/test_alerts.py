"""Alerts of a running daemon: a stream that halts, a daemon that is killed, and the stream's recovery.

The driver is a stand-in that fails as only an operator can answer, and later one that works.
"""

from __future__ import annotations

import importlib.resources
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import orchestration
from jobs.streaming.supervision.control.stream_control import StreamControl
from orchestration.cli.local.dev.child_process import Child, end_children
from tests.helpers.alert_receivers import Hook, receiving_hook
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import deployment_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
STREAM = "payments"
STANDIN = (sys.executable, "-m", "tests.helpers.standin_driver")
SETTINGS = """\
lease_ttl: 4s
alerts:
  targets:
    - {webhook: {url: '${env:ALERT_HOOK}'}, severity: critical}
"""
WORKSPACE = "load_from: [{python_module: {module_name: orchestration.definitions, location_name: frazil}}]\n"


class Daemon:
    """A deployment with Dagster's daemon, and nothing else of Dagster."""

    def __init__(self, home: Path, hook: Hook) -> None:
        self.home: Path = deployment_in(home, STREAM)
        self._url: str = hook.url
        (home / "frazil.yaml").write_text(SETTINGS)
        self._dagster: Path = home / ".frazil" / "dagster"
        self._dagster.mkdir(parents=True)
        instance = importlib.resources.files(orchestration).joinpath("dagster.yaml").read_text()
        (self._dagster / "dagster.yaml").write_text(instance)
        (home / "workspace.yaml").write_text(WORKSPACE)
        self.children: list[Child] = []

    def start(self, driver: str) -> Child:
        """Start the daemon.

        Args:
            driver: How the drivers behave that it starts, see `standin_driver`.
        """
        env = {
            "DAGSTER_HOME": str(self._dagster),
            "FRAZIL_HOME": str(self.home),
            "FRAZIL_DRIVER_COMMAND": " ".join(STANDIN),
            "PYTHONPATH": str(ROOT),
            "STANDIN": driver,
            "ALERT_HOOK": self._url,
        }
        command = [sys.executable, "-m", "dagster._daemon", "run", "-w", str(self.home / "workspace.yaml")]
        log = self._dagster / f"daemon-{len(self.children)}.log"
        self.children.append(Child("daemon", command, log=log, env=env, cwd=self.home))
        return self.children[-1]

    def control(self) -> StreamControl:
        return StreamControl(self.home, None, STREAM, command=STANDIN)

    def logs(self) -> str:
        return "".join(path.read_text(errors="replace") for path in self._dagster.glob("daemon-*.log"))


@pytest.fixture
def hook() -> Iterator[Hook]:
    with receiving_hook() as made:
        yield made


@pytest.fixture
def daemon(tmp_path: Path, hook: Hook) -> Iterator[Daemon]:
    made = Daemon(tmp_path, hook)
    try:
        yield made
    finally:
        made.control().stop("the test ends", "tester")
        end_children(made.children)


def statuses(hook: Hook) -> list[str]:
    return [alert["status"] for alert in hook.alerts if alert["alarm"] == "stream_halted"]


def test_a_halted_stream_is_told_once_though_the_daemon_is_killed(
    daemon: Daemon, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook.status = 500
    first = daemon.start("operator")
    wait_for(lambda: len(hook.posts) >= 2, "a refused message and its repetition", 120)
    assert set(statuses(hook)) == {"firing"}
    refused = len(hook.posts)
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: first.ending(), "the daemon's end", 30)

    hook.status = 200
    daemon.start("lands")
    wait_for(lambda: len(hook.posts) > refused, "the message by the next daemon", 120)
    (taken,) = [alert for alert in hook.posts[-1]["alerts"] if alert["alarm"] == "stream_halted"]
    assert (taken["stream"], taken["severity"]) == (STREAM, "critical")
    assert "the broker is made of cheese" in taken["what"]
    assert taken["next"] == f"eat it; then frazil start {STREAM}"

    monkeypatch.setenv("STANDIN", "lands")
    daemon.control().start("the broker was replaced", "tester")
    wait_for(lambda: statuses(hook)[-1] == "resolved", "the message about its end", 180)
    taken_at = len(statuses(hook)) - statuses(hook).index("resolved")
    assert taken_at == 1, "it is told once"
    keys = {alert["dedupe_key"] for alert in hook.alerts if alert["alarm"] == "stream_halted"}
    assert len(keys) == 1, "and the same message each time"
    assert hook.url not in daemon.logs()
