"""Materializing and checking a stream that runs by itself, with drivers that only beat."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.runtime.open_stream import stream_folder
from jobs.supervise.control import Control, write_control
from jobs.supervise.heartbeat import read_heartbeat
from jobs.supervise.launcher import COMMAND_VARIABLE
from orchestration.definitions import build_definitions
from resources.deployment import Deployment
from tests.unit.orchestration.drivers import end_all
from tests.unit.supervise.worlds import STANDIN, World

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
    with dg.instance_for_test() as instance:
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


def test_a_stopped_stream_is_not_started_by_materializing_it(running: World) -> None:
    folder = stream_folder(Deployment.at(running.home).settings(), "payments").root
    write_control(folder, Control("stopped", by="jo"))
    with dg.instance_for_test() as instance:
        result = run(running, instance)
    assert not result.success
    assert read_heartbeat(folder) is None
