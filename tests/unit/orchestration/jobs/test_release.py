"""The release job of Dagster, on a real table."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.definitions import build_definitions
from orchestration.jobs.release import JOB, OP, ReleaseConfig
from orchestration.jobs.runs import ACTION_TAG, BY_TAG, REASON_TAG, STREAM_TAG, run_config
from resources.deployment import Deployment
from tests.unit.quality.publishing.branch_world import BranchWorld
from tests.unit.quality.publishing.discard_world import DiscardWorld

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def run(world: BranchWorld, instance: dg.DagsterInstance, **config: Any) -> dg.ExecuteInProcessResult:
    job = build_definitions(Deployment.at(world.home)).resolve_job_def(JOB)
    asked = ReleaseConfig(stream="payments", by="jo", reason="known and harmless", **config)
    return job.execute_in_process(run_config=run_config(OP, asked), instance=instance, raise_on_error=False)


def told(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    assert done.success
    (event,) = [each for each in done.all_events if each.event_type_value == "STEP_OUTPUT"]
    return {name: each.value for name, each in event.step_output_data.metadata.items()}


def refusal(done: dg.ExecuteInProcessResult) -> str:
    assert not done.success
    failure = done.failure_data_for_node(OP)
    assert failure is not None
    assert failure.user_failure_data is not None
    return failure.user_failure_data.description or ""


def test_it_only_tells_until_it_is_asked_to(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    world = DiscardWorld(tmp_path / "home")
    bad = world.land(2)
    world.bad = set(bad)
    assert world.publish_gated().became == "held"
    behind = world.land(1)
    facts = told(run(world, instance))
    assert (facts["done"], facts["rows"], facts["branch"]) == (False, 2, "ingest")
    assert (facts["from"], facts["to"]) == ({"payments": {"0": 0}}, {"payments": {"0": 2}})
    assert facts["reasons"] == "\n".join(f"id {each} is not accepted" for each in bad)
    assert "snapshot_id" not in facts
    assert (world.rows(), world.gate.generation) == (Counter(), 0), "nothing is changed"
    done = run(world, instance, dry_run=False)
    facts = told(done)
    assert (facts["done"], facts["rows"], facts["by"], facts["gate_generation"]) == (True, 2, "jo", 1)
    assert (world.rows(), world.gate.held) == (Counter(bad), None), f"{behind} waits for the next judgement"
    head = world.table().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert str(head.snapshot_id) == facts["snapshot_id"]
    assert "jo: known and harmless" in head.summary.additional_properties["frazil.stamp"]
    kept = instance.get_run_by_id(done.run_id)
    assert kept is not None
    tags = kept.tags
    asked = ("payments", "release", "known and harmless", "jo")
    assert (tags[STREAM_TAG], tags[ACTION_TAG], tags[REASON_TAG], tags[BY_TAG]) == asked
    for dry_run in (True, False):
        assert "no rows are quarantined" in refusal(run(world, instance, dry_run=dry_run))


def test_a_stream_without_a_gate_is_refused(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    world = BranchWorld(tmp_path / "home")
    world.land(1)
    for dry_run in (True, False):
        assert "publishes nothing by contract: its file has no `publish`" in refusal(
            run(world, instance, dry_run=dry_run)
        )
    assert world.rows() == Counter()
