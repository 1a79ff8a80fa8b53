"""The runs that keep actions: they hold nothing up, and leave the operator's wish as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from jobs.streaming.supervision.launchers.local_process import COMMAND_VARIABLE
from orchestration.cli.common.recorded_runs import open_recorder
from orchestration.cli.streams.control import carry_out_control
from orchestration.jobs.control import ControlConfig, StreamAction, control_job, control_run_config
from orchestration.jobs.runs import WORKER_TAG, this_worker
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from tests.unit.orchestration.drivers import end_all
from tests.unit.streaming.supervision.worlds import STANDIN, WHY, World


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(COMMAND_VARIABLE, " ".join(STANDIN))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    made = World(tmp_path)
    yield made
    end_all(made)


def test_a_command_that_is_killed_before_its_step_holds_nothing_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = Deployment.at(world.home)
    with open_recorder(deployment) as ledger:
        instance = ledger.instance
        assert instance is not None
        created: dict[str, str] = {}

        def add_run(run: dg.DagsterRun) -> dg.DagsterRun:
            created.update(run.tags)
            assert run.tags[WORKER_TAG] == this_worker(run.run_id)
            return real(run)

        real = instance.run_storage.add_run
        monkeypatch.setattr(instance.run_storage, "add_run", add_run)
        carry_out_control(ledger, ControlConfig(stream="payments", action=StreamAction.pause))
    assert {"frazil/stream": "payments", "dagster/max_runtime": "1200"}.items() <= created.items()


def test_the_supervisor_lets_a_driver_go_and_leaves_the_wish(world: World) -> None:
    world.control().start(*WHY)
    config = ControlConfig(stream="payments", action=StreamAction.let_go, by="supervisor")
    with dg.DagsterInstance.ephemeral() as instance:
        result = control_job.execute_in_process(
            run_config=control_run_config(config),
            instance=instance,
            resources={"deployment": DeploymentResource.of(Deployment.at(world.home))},
        )
        assert result.success
    assert world.living() == []
    assert (world.request().mode, world.request().end_attempt) == ("running", 1)
