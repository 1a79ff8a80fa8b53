"""The checks of a running stream, executed as from the UI."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.definitions.freshness import TimeWindowFreshnessPolicy

from assets import dagster_names
from assets.deployment_assets import SUPERVISOR_KEY, supervisor_asset
from assets.stream_checks import DESCRIPTIONS, CheckOutcome, evaluation, stream_checks
from assets.streams import stream_assets
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.settings.settings import Settings
from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from resources.services import CatalogResource, KafkaResource, SparkResource
from tests.unit.orchestration.deployments import STREAM

# Dagster warns about itself when one resource holds another.
pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated")


def judge(deployment: Deployment, stream: str, *_: object) -> Sequence[CheckOutcome]:
    assert stream == "orders"
    return [
        CheckOutcome(name, name != "driver_alive", f"{name} in words.", "code", figures={"attempt": 3})
        for name in DESCRIPTIONS
    ]


def deployment(home: Path, more: str = "") -> Deployment:
    (home / "streams").mkdir()
    (home / "streams" / "orders.yaml").write_text(STREAM.format(stream="orders", topic="orders.v1") + more)
    return Deployment.at(home)


def resources(here: Deployment) -> dict[str, Any]:
    paths = DeploymentResource.of(here)
    return {
        "deployment": paths,
        "catalog": CatalogResource(deployment=paths),
        "kafka": KafkaResource(deployment=paths),
        "spark": SparkResource(deployment=paths),
    }


def test_checks_can_be_executed_one_by_one(tmp_path: Path) -> None:
    here = deployment(tmp_path)
    spec, settings = here.stream("orders"), here.settings()
    key = dagster_names.table_key(settings, spec.table.name)
    defs = dg.Definitions(
        assets=[stream_assets(spec, settings), supervisor_asset()],
        asset_checks=[stream_checks(spec, key, judge)],
        resources=resources(here),
    )
    job = defs.resolve_implicit_global_asset_job_def()
    for name in DESCRIPTIONS:
        with dg.DagsterInstance.ephemeral() as instance:
            checks = job.get_subset(asset_selection=set(), asset_check_selection={dg.AssetCheckKey(key, name)})
            result = checks.execute_in_process(instance=instance)
        (found,) = result.get_asset_check_evaluations()
        assert (found.check_name, found.passed) == (name, name != "driver_alive")
        assert found.description == f"{name} in words."


def test_streams_whose_names_are_alike_have_checks_of_their_own(tmp_path: Path) -> None:
    spec = deployment(tmp_path).stream("orders")
    key = dg.AssetKey(["frazil", "a"])
    alike = [spec.model_copy(update={"stream": name}) for name in ("card-payments", "card_payments")]
    assert len({stream_checks(each, key, judge).op.name for each in alike}) == 2


def test_the_same_verdict_is_told_without_a_run() -> None:
    verdict = CheckOutcome("driver_alive", False, "Gone. Next: frazil start orders", "gone", warn=True)
    event = evaluation(verdict, dg.AssetKey(["frazil", "orders"]))
    assert (event.passed, event.severity, event.description) == (False, dg.AssetCheckSeverity.WARN, verdict.sentence)


def test_the_supervisor_is_an_asset_that_turns_stale() -> None:
    asset = supervisor_asset()
    assert asset.key == SUPERVISOR_KEY
    policy = asset.freshness_policy
    assert isinstance(policy, TimeWindowFreshnessPolicy)
    assert policy.warn_window is not None
    # It is reported every two minutes.
    windows = (policy.warn_window.to_timedelta(), policy.fail_window.to_timedelta())
    assert windows == (timedelta(minutes=5), timedelta(minutes=10))


def failure(here: Deployment) -> Any:
    spec = here.stream("orders")
    result = dg.materialize([stream_assets(spec, here.settings())], resources=resources(here), raise_on_error=False)
    assert not result.success
    (event,) = result.get_step_failure_events()
    assert event.step_failure_data.user_failure_data is not None
    return event.step_failure_data.user_failure_data


@pytest.mark.parametrize("trigger", ["", "trigger: available_now\n"], ids=["continuous", "available_now"])
def test_a_paused_stream_refuses_to_be_materialized_and_names_the_way_out(tmp_path: Path, trigger: str) -> None:
    here = deployment(tmp_path, trigger)
    write_control(stream_folder(here.settings(), "orders").store, ControlRequest("paused", reason="month end", by="jo"))
    told = failure(here)
    assert "is paused by jo: month end" in told.description
    assert told.metadata["next"].value == "frazil resume orders"


def test_the_description_says_what_terminate_does(tmp_path: Path) -> None:
    here = deployment(tmp_path)
    (table, _) = stream_assets(here.stream("orders"), Settings.embedded(tmp_path)).specs
    assert "Terminating that run does not stop the stream" in (table.description or "")
