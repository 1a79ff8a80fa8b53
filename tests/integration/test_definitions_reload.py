"""A new stream on Dagster's pages without a click: code server, webserver's workspace and sensor as in production."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import GrpcServerTarget
from dagster._grpc.client import DagsterGrpcClient

from jobs.base.system.ports import free_ports
from jobs.base.system.processes import is_alive, session_members, start_time
from orchestration.cli.common.dagster_instance import make_instance
from orchestration.cli.local.dev.child_process import Child, end_children
from tests.helpers.waiting import wait_for
from tests.unit.orchestration.deployments import STREAM, deployment_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
SENSOR = "frazil_reconcile"


class Services:
    """A code server, and the workspace that a webserver or a daemon has of it.

    Args:
        command: What is to serve the definitions: `code-server start`, or `api grpc`, which cannot load them anew.
    """

    def __init__(self, home: Path, *command: str) -> None:
        self.home: Path = deployment_in(home, "payments")
        dagster = home / ".frazil" / "dagster"
        make_instance(dagster)
        self.instance: dg.DagsterInstance = dg.DagsterInstance.from_config(str(dagster))
        (port,) = free_ports(1)
        env = {"DAGSTER_HOME": str(dagster), "FRAZIL_HOME": str(home), "PYTHONPATH": str(ROOT)}
        where = ["-m", "orchestration.definitions", "-h", "127.0.0.1", "-p", str(port)]
        self.code: Child = Child(
            "the code server", [sys.executable, "-m", "dagster", *command, *where],
            log=dagster / "code.log", env={**os.environ, **env}, cwd=home,
        )  # fmt: skip
        client = DagsterGrpcClient(port=port, host="127.0.0.1")

        def answers() -> bool:
            assert self.code.ending() is None, self.code.last_words()
            with contextlib.suppress(DagsterUserCodeUnreachableError):
                return bool(client.list_repositories())
            return False

        wait_for(answers, "the code server to answer")
        self.workspace: WorkspaceProcessContext = WorkspaceProcessContext(
            self.instance, GrpcServerTarget("127.0.0.1", port, None, "frazil")
        )
        self.cursor: str | None = None

    @property
    def assets(self) -> set[str]:
        """The keys that pages show."""
        graph = self.workspace.create_request_context().asset_graph
        return {key.to_user_string() for key in graph.get_all_asset_keys()}

    def tick(self) -> Any:
        """A tick of the sensor, as the daemon asks for it."""
        location = self.workspace.create_request_context().get_code_location("frazil")
        (repository,) = location.get_repositories().values()
        found = location.get_sensor_execution_data(
            self.instance, repository.handle, SENSOR, None, None, self.cursor, None, None
        )
        self.cursor = found.cursor
        return found

    def close(self) -> None:
        self.workspace.__exit__(None, None, None)
        self.instance.dispose()
        end_children([self.code])


@contextmanager
def services(home: Path, *command: str) -> Iterator[Services]:
    made = Services(home, *command)
    try:
        yield made
    finally:
        made.close()


def members(child: Child) -> dict[int, str | None]:
    return {pid: start_time(pid) for pid in session_members(child.pid)}


def test_a_stream_that_comes_and_goes_is_shown_without_a_click(tmp_path: Path) -> None:
    with services(tmp_path, "code-server", "start") as running:
        assert "frazil/orders/payments" in running.assets
        running.tick()
        former = members(running.code)
        (running.home / "streams" / "refunds.yaml").write_text(STREAM.format(stream="refunds", topic="refunds.v1"))
        running.tick()
        running.tick()
        # The workspace is a webserver's: it looks each second whether the code server has loaded anew.
        wait_for(lambda: "frazil/orders/refunds" in running.assets, "the new stream's table", 60)
        assert {"kafka/refunds.v1", "frazil/orders/refunds_dead", "frazil/orders/payments"} <= running.assets
        said = running.tick()
        assert "have changed" not in (said.skip_message or "")
        ended = [pid for pid in former if pid != running.code.pid]
        wait_for(lambda: all(not is_alive(pid, former[pid] or "") for pid in ended), "the former processes to end", 60)
        (running.home / "streams" / "refunds.yaml").unlink()
        running.tick()
        running.tick()
        wait_for(lambda: "frazil/orders/refunds" not in running.assets, "the stream to leave the pages", 60)


def test_a_server_that_cannot_load_anew_is_named_in_the_tick(tmp_path: Path) -> None:
    with services(tmp_path, "api", "grpc") as running:
        (running.home / "streams" / "refunds.yaml").write_text(STREAM.format(stream="refunds", topic="refunds.v1"))

        def told() -> bool:
            return "Next: restart it, as `dagster code-server start`" in (running.tick().skip_message or "")

        wait_for(told, "the sensor to name the code server", 20)
