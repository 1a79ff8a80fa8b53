"""Materializing and checking a stream that runs by itself, with drivers that only beat."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.streaming.supervision.documents.heartbeat import read_heartbeat
from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from orchestration.definitions import build_definitions
from resources.deployment import Deployment
from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import STANDIN, World

# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")

TABLE = dg.AssetKey(["frazil", "orders", "payments"])


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(COMMAND_VARIABLE, shlex.join(STANDIN))
    made = World(tmp_path)
    try:
        yield made
    finally:
        end_all(made)


def run(world: World, instance: dg.DagsterInstance, checks: tuple[str, ...] = ()) -> Any:
    """Materialize the stream's table and dead letters, or execute some of its checks."""
    job = build_definitions(Deployment.at(world.home)).resolve_implicit_global_asset_job_def()
    if checks:
        wanted = {dg.AssetCheckKey(TABLE, name) for name in checks}
        job = job.get_subset(asset_selection=set(), asset_check_selection=wanted)
    else:
        job = job.get_subset(asset_selection={TABLE, dg.AssetKey(["frazil", "orders", "payments_dead"])})
    return job.execute_in_process(instance=instance, raise_on_error=False)


def test_to_materialize_is_to_see_to_it_that_the_stream_runs(running: World) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        before = run(running, instance, ("driver_alive",))
        first = run(running, instance)
        second = run(running, instance)
        after = run(running, instance, ("driver_alive", "configuration"))
    assert first.success
    assert second.success
    table = first.asset_materializations_for_node("drain_payments")[0]
    beat = running.beat()
    assert table.metadata["driver_pid"].value == beat.pid
    assert table.metadata["generation"].value == beat.generation
    assert table.metadata["attempt"].value == 1
    assert "driver_log" in table.metadata
    again = second.asset_materializations_for_node("drain_payments")[0]
    assert (again.metadata["driver_pid"].value, again.metadata["attempt"].value) == (beat.pid, 1)
    (due,) = before.get_asset_check_evaluations()
    assert (due.passed, due.description) == (True, "It has not been launched before.")
    told = {each.check_name: each.passed for each in after.get_asset_check_evaluations()}
    assert told == {"driver_alive": True, "configuration": True}


def test_to_materialize_a_running_stream_counts_nothing(running: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its page promises moments. The web UI names all checks beside the assets."""
    home = Deployment.at(running.home)
    counted: list[str] = []
    for place in (
        "jobs.proof.audit.audit.audit",
        "jobs.maintenance.measure.health_measurement.measure_health",
        "assets.dead_letters.tally_dead_letters",
    ):
        monkeypatch.setattr(place, lambda *_, _place=place, **__: counted.append(_place))
    monkeypatch.setattr(
        "assets.materialization.tally_dead_letters", lambda *_: counted.append("assets.materialization")
    )
    dead = dg.AssetKey(["frazil", "orders", "payments_dead"])
    letters = {"dead_letters_waiting": 7, "letters": dg.MetadataValue.md("| reason |"), "epoch": 3}
    job = build_definitions(home).resolve_implicit_global_asset_job_def()
    checks = {key for key in job.asset_layer.asset_graph.asset_check_keys if key.asset_key in (TABLE, dead)}
    with dg.DagsterInstance.ephemeral() as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization(dead, metadata=letters))
        for key, name, passed in ((TABLE, "exactly_once", False), (TABLE, "table_health", True)):
            found = dg.AssetCheckEvaluation(
                asset_key=key, check_name=name, passed=passed, description="So it was.", metadata={"problems": 2}
            )
            instance.report_runless_asset_event(found)
        subset = job.get_subset(asset_selection={TABLE, dead}, asset_check_selection=checks)
        # Told again by several runs, a verdict keeps its time.
        assert subset.execute_in_process(instance=instance, raise_on_error=False).success
        result = subset.execute_in_process(instance=instance, raise_on_error=False)
        assert result.success
        told = {(each.asset_key, each.check_name): each for each in result.get_asset_check_evaluations()}
        (report,) = [
            each for each in result.asset_materializations_for_node("drain_payments") if each.asset_key == dead
        ]
        assert counted == []
        audit = told[TABLE, "exactly_once"]
        assert (audit.passed, audit.metadata["problems"].value) == (False, 2)
        assert re.fullmatch(
            r"As of \d{4}-\d\d-\d\d \d\d:\d\d UTC, not evaluated since: So it was.", audit.description or ""
        )
        assert told[TABLE, "table_health"].passed
        assert (dead, "letters_waiting") not in told, "it never said anything"
        assert told[TABLE, "driver_alive"].passed, "what only looks is evaluated"
        assert report.metadata["dead_letters_waiting"].value == 7
        assert report.metadata["epoch"].value != 3
        alone = job.get_subset(asset_selection=set(), asset_check_selection={dg.AssetCheckKey(TABLE, "exactly_once")})
        alone.execute_in_process(instance=instance, raise_on_error=False)
    assert counted == ["jobs.proof.audit.audit.audit"]


def test_a_stopped_stream_is_not_started_by_materializing_it(running: World) -> None:
    folder = stream_folder(Deployment.at(running.home).settings(), "payments").root
    write_control(LocalStore(folder), ControlRequest("stopped", by="jo"))
    with dg.DagsterInstance.ephemeral() as instance:
        result = run(running, instance)
    assert not result.success
    assert read_heartbeat(LocalStore(folder)) is None
