"""`frazil dev` has one code server for webserver and daemon, and a reload reaches both."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from jobs.base.errors import FrazilError
from orchestration.cli.local.dev.dagster_api import DagsterClient
from orchestration.cli.local.dev.services import FILE, Claim
from tests.helpers.waiting import wait_for
from tests.integration.marked import Marked
from tests.unit.orchestration.deployments import STREAM, deployment_in

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
SOON = 240
# Streams that run on request alone, so that no driver starts.
DRAINED = STREAM + "trigger: available_now\n"
RELOAD = """mutation { reloadRepositoryLocation(repositoryLocationName: "frazil") { __typename } }"""
TICK = """query { sensorsOrError(repositorySelector: {repositoryName: "__repository__",
    repositoryLocationName: "frazil"}) { ... on Sensors { results { name sensorState { ticks(limit: 1) {
    status } } } } } }"""


def services(home: Path) -> Claim | None:
    path = home / ".frazil" / "dagster" / FILE
    noted = path.read_bytes() if path.exists() else b""
    return msgspec.json.decode(noted, type=Claim) if noted else None


def has_asset(api: DagsterClient, stream: str) -> bool:
    return api.find(["frazil", "orders", stream]) is not None


def ticked(api: DagsterClient) -> bool:
    """Whether the daemon has had a sensor's tick evaluated by the code server."""
    try:
        sensors = api.ask(TICK)["sensorsOrError"].get("results", ())
    except (ConnectionError, FrazilError):
        return False
    ticks = [tick["status"] for each in sensors for tick in each["sensorState"]["ticks"]]
    return "SKIPPED" in ticks or "SUCCESS" in ticks


def test_webserver_and_daemon_share_one_code_server_and_a_reload_reaches_it(tmp_path: Path) -> None:
    home = deployment_in(tmp_path)
    (home / "streams" / "first.yaml").write_text(DRAINED.format(stream="first", topic="first"))
    with Marked(home, ["dev"]) as dev:

        def up() -> bool:
            assert not dev.ended(), dev.finish(5)
            claim = services(home)
            return claim is not None and bool(claim.url) and has_asset(DagsterClient(claim.url), "first")

        wait_for(up, "the first stream's asset", SOON)
        claim = services(home)
        assert claim is not None
        assert set(claim.services) == {"code server", "webserver", "daemon"}
        api = DagsterClient(claim.url)
        wait_for(lambda: ticked(api), "a tick of the daemon", SOON)
        assert len(dev.living("code-server start")) == 1
        (before,) = dev.processes("dagster api grpc")
        (home / "streams" / "second.yaml").write_text(DRAINED.format(stream="second", topic="second"))
        assert api.ask(RELOAD)["reloadRepositoryLocation"]["__typename"] == "WorkspaceLocationEntry"
        wait_for(lambda: has_asset(api, "second"), "the second stream's asset", SOON)
        # The former one ends once nothing runs in it.
        wait_for(lambda: before not in dev.processes("dagster api grpc"), "the former code to end", SOON)
        assert len(dev.processes("dagster api grpc")) == 1
        dev.interrupt()
        status, _, errors = dev.finish(120)
        assert status == 130, errors
        wait_for(lambda: not [each for each in dev.living() if "dagster" in each], "Dagster's processes to end", 30)
