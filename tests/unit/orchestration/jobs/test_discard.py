"""The discard job of Dagster, on a real table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.definitions import build_definitions
from orchestration.jobs.discard import JOB, OP, DiscardConfig
from orchestration.jobs.runs import run_config
from resources.deployment import Deployment
from tests.unit.quality.publishing.discard_world import DiscardWorld

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def run(world: DiscardWorld, instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    job = build_definitions(Deployment.at(world.home)).resolve_job_def(JOB)
    asked = DiscardConfig(stream="payments", without_kafka=True, by="jo", reason="a load test", **config)
    return job.execute_in_process(run_config=run_config(OP, asked), instance=instance, raise_on_error=False)


def told(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (event,) = [each for each in done.all_events if each.is_step_success or each.event_type_value == "STEP_OUTPUT"][:1]
    return {name: each.value for name, each in event.step_output_data.metadata.items()}


def test_it_only_tells_until_it_is_asked_to(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    world = DiscardWorld(tmp_path / "home")
    world.bad = set(world.land(2))
    world.publish_gated()
    shown = run(world, instance)
    assert shown.success
    assert (told(shown)["done"], told(shown)["letters"], world.letters()) == (False, 2, [])
    done = run(world, instance, dry_run=False)
    assert done.success
    assert (told(done)["done"], told(done)["letters"], told(done)["by"]) == (True, 2, "jo")
    assert (world.rows(), world.lettered()) == (Counter(), Counter({0: 1, 1: 1}))
    refused = run(world, instance, dry_run=False)
    assert not refused.success
    failure = refused.failure_data_for_node(OP)
    assert failure is not None
    assert failure.user_failure_data is not None
    assert "no rows are quarantined" in (failure.user_failure_data.description or "")
