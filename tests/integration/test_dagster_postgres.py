"""Dagster's instance in PostgreSQL, with code server and daemon apart, as in production.

The driver only beats and holds the lease. One test, as a start of Dagster's services is ten seconds of CPU.
"""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml

import orchestration
from jobs.base.errors import FrazilError
from jobs.base.system.ports import free_ports
from jobs.base.system.processes import session_members
from jobs.clients.state_store.stream_folder import StreamFolder, stream_folder
from jobs.config.settings.settings import load_settings
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.streaming.supervision.documents.launches import read_launch
from orchestration.cli.local.dev.child_process import Child, end_children
from tests.helpers.dagster_database import PASSWORD_VARIABLE, dagster_storage
from tests.helpers.database_server import DatabaseServer
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import deployment_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
STREAM = "payments"
STANDIN = (sys.executable, "-m", "tests.helpers.standin_driver")
SENSOR_TICKS = """SELECT count(*) FROM job_ticks WHERE status IN ('SKIPPED', 'SUCCESS') AND id > %s
  AND tick_body LIKE '%%frazil_reconcile%%'"""


class Production:
    """A deployment whose services are processes of their own, and whose Dagster is in PostgreSQL."""

    def __init__(self, home: Path, server: DatabaseServer) -> None:
        self.home: Path = deployment_in(home, STREAM)
        (home / "frazil.yaml").write_text("lease_ttl: 4s\n")
        self._server: DatabaseServer = server
        storage, self._secret = dagster_storage(server, "dagster")
        self._dagster: Path = home / ".frazil" / "dagster"
        self._dagster.mkdir(parents=True)
        settings = yaml.safe_load(importlib.resources.files(orchestration).joinpath("dagster.yaml").read_text())
        (self._dagster / "dagster.yaml").write_text(yaml.safe_dump(settings | storage))
        (self._code,) = free_ports(1)
        entry = {"grpc_server": {"host": "127.0.0.1", "port": self._code, "location_name": "frazil"}}
        self._workspace: Path = home / "workspace.yaml"
        self._workspace.write_text(yaml.safe_dump({"load_from": [entry]}))
        self.services: list[Child] = []

    def start_code_server(self, name: str) -> Child:
        address = ["-h", "127.0.0.1", "-p", str(self._code)]
        return self._start(name, ["code-server", "start", "-m", "orchestration.definitions", *address], "dagster")

    def start_daemon(self) -> Child:
        return self._start("daemon", ["run", "-w", str(self._workspace)], "dagster._daemon")

    def _start(self, name: str, arguments: list[str], module: str) -> Child:
        env = {
            "DAGSTER_HOME": str(self._dagster),
            "FRAZIL_HOME": str(self.home),
            "FRAZIL_DRIVER_COMMAND": " ".join(STANDIN),
            "PYTHONPATH": str(ROOT),
            "STANDIN": "lands",
            PASSWORD_VARIABLE: self._secret,
        }
        command = [sys.executable, "-m", module, *arguments]
        log = self._dagster / f"{name}.log"
        self.services.append(Child(name, command, log=log, env=env, cwd=self.home))
        return self.services[-1]

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._server.url_of("dagster"), password=self._secret) as connection:
            return connection.execute(query, values).fetchall()  # pyright: ignore[reportArgumentType]

    def folder(self) -> StreamFolder:
        return stream_folder(load_settings(None, home=self.home), STREAM)

    def attempt(self) -> int:
        launch = read_launch(self.folder().store)
        return launch.attempt if launch is not None else 0

    def driver(self, attempt: int) -> int:
        """The pid of a driver that runs; 0 while there is none of this attempt."""
        for child in self.services:
            how = child.ending()
            assert how is None or child.name.startswith("former"), f"{child.name} {how}: {child.last_words()}"
        beat = read_heartbeat(self.folder().store)
        return beat.pid if beat is not None and beat.attempt == attempt and beat.state == "running" else 0

    def control_runs(self) -> list[str]:
        return [status for (status,) in self.rows("SELECT status FROM runs WHERE pipeline_name = 'frazil_control'")]

    def last_tick(self) -> int:
        return self.rows("SELECT coalesce(max(id), 0) FROM job_ticks")[0][0]

    def ticked(self, after: int) -> bool:
        return self.rows(SENSOR_TICKS, after)[0][0] > 0

    def end(self) -> None:
        with contextlib.suppress(FrazilError):
            StreamControl(self.home, None, STREAM).stop("the test ends", "tester")
        end_children(self.services)


@pytest.fixture
def production(tmp_path: Path, database: DatabaseServer) -> Iterator[Production]:
    made = Production(tmp_path, database)
    try:
        yield made
    finally:
        made.end()


def test_a_stream_is_started_once_and_supervised_over_a_change_of_code_servers(production: Production) -> None:
    first = production.start_code_server("former code server")
    production.start_daemon()
    wait_for(lambda: production.driver(1), "the sensor to start the stream", 120)
    key = '["frazil", "orders", "payments"]'
    check = "SELECT count(*) FROM asset_check_executions WHERE asset_key = %s AND check_name = 'driver_alive'"
    wait_for(lambda: production.rows(check, key)[0][0], "the table's checks in PostgreSQL", 60)
    events = "SELECT count(*) FROM event_logs WHERE run_id = '' AND asset_key = %s"
    wait_for(lambda: production.rows(events, '["frazil", "supervisor"]')[0][0], "the supervisor's report", 60)
    wait_for(lambda: production.control_runs() == ["SUCCESS"], "the control run's end", 60)
    assert not list((production.home / ".frazil" / "dagster").rglob("*.db")), "nothing is kept beside it"

    # A deploy: another code server is there before the first one goes.
    second = production.start_code_server("code server")
    wait_for(lambda: "Started Dagster code proxy server" in second.log.read_text(), "the second one", 60)
    before = production.last_tick()
    wait_for(lambda: production.ticked(before), "a tick while there are two", 60)
    os.kill(first.pid, signal.SIGTERM)
    wait_for(lambda: first.ending(), "the first one's end", 60)
    before = production.last_tick()
    wait_for(lambda: production.ticked(before), "a tick afterwards", 60)
    assert (production.attempt(), production.control_runs()) == (1, ["SUCCESS"])
    assert session_members(production.driver(1)), "the driver lives"
