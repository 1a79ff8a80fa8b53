"""The schedule of maintenance: when it asks for a run, and when it does not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from jobs.config.services.maintenance_policy import Policy
from jobs.config.settings.maintained_tables import MaintainedTable
from jobs.maintenance.measure.health_score import score
from jobs.maintenance.plan.plan import Step
from jobs.maintenance.plan.results import StepResult, TableResult
from jobs.maintenance.run.maintenance_run import MaintenanceOutcome
from orchestration.cli.tables.maintain import print_done
from orchestration.definitions import build_definitions
from orchestration.jobs.maintain.jobs import JOB, SCHEDULE
from orchestration.jobs.maintain.metadata import outcome_metadata
from orchestration.jobs.maintain.report import plan_rows, table_sentences
from orchestration.jobs.runs import WORKER_TAG, this_worker
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from tests.helpers.lake import NAME, Lake
from tests.unit.orchestration.deployments import deployment_in

AT = datetime(2026, 3, 2, 3, 57, tzinfo=UTC)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.instance_for_test() as made:
        yield made


def evaluated(home: Path, instance: dg.DagsterInstance) -> Any:
    deployment = Deployment.at(home)
    with dg.build_schedule_context(
        instance,
        scheduled_execution_time=AT,
        resources={"deployment": DeploymentResource.of(deployment)},
        repository_def=None,
    ) as context:
        return build_definitions(deployment).resolve_schedule_def(SCHEDULE).evaluate_tick(context)


def made(home: Path, instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    job = build_definitions(Deployment.at(home)).resolve_job_def(JOB)
    return instance.create_run_for_job(job, status=status, tags=job.tags)


def test_it_asks_each_hour_for_all_tables(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    home = deployment_in(tmp_path, "payments")
    (request,) = evaluated(home, instance).run_requests
    assert request.run_key == "maintain:2026-03-02T03"
    config = request.run_config["ops"]["maintain"]["config"]
    assert (config["dry_run"], config["tables"], config["actions"], config["by"]) == (False, [], [], "schedule")
    schedule = build_definitions(Deployment.at(home)).resolve_schedule_def(SCHEDULE)
    assert (schedule.cron_schedule, schedule.execution_timezone) == ("57 * * * *", "UTC")
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED])
def test_runs_do_not_pile_up(tmp_path: Path, instance: dg.DagsterInstance, status: dg.DagsterRunStatus) -> None:
    home = deployment_in(tmp_path, "payments")
    run = made(home, instance, status)
    assert evaluated(home, instance).skip_message == (
        f"Run {run.run_id} maintains tables, or waits to; the next hour asks again."
    )
    instance.report_run_canceled(run)
    assert evaluated(home, instance).run_requests


def test_a_run_whose_process_is_gone_is_given_up(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    home = deployment_in(tmp_path, "payments")
    run = made(home, instance, dg.DagsterRunStatus.STARTED)
    gone = this_worker(run.run_id).replace(f" {os.getpid()} ", " 999999999 ")
    instance.add_run_tags(run.run_id, {WORKER_TAG: gone})
    assert evaluated(home, instance).run_requests
    now = instance.get_run_by_id(run.run_id)
    assert now is not None
    assert now.status is dg.DagsterRunStatus.FAILURE


def test_it_asks_for_none_where_there_is_nothing_to_maintain(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    (tmp_path / "streams").mkdir()
    assert evaluated(tmp_path, instance).skip_message == (
        "There is no stream, and the settings name no table under maintenance.tables."
    )
    (tmp_path / "frazil.yaml").write_text("maintenance: {tables: [{name: lake.events}]}\n")
    assert evaluated(tmp_path, instance).run_requests
    (tmp_path / "frazil.yaml").write_text("maintenance: {tabels: []}\n")
    assert "tabels: unknown key" in evaluated(tmp_path, instance).skip_message


HELD = {
    "held_by": "ledger: 3 stamps are not there",
    "warning": "900 snapshots stay, of which the policy keeps 300 at most, for ledger",
    "ledger": "somebody else's table has its name",
}


@pytest.fixture
def outcome(tmp_path: Path) -> MaintenanceOutcome:
    lake = Lake(tmp_path)
    planned = lake.maintain(lambda: pytest.fail("no Spark"), {}, dry_run=True)
    lake.catalog.close()
    policy = Policy()
    # An expiry for which nothing was left to do: it is there that it matters who holds what.
    done = StepResult(Step("expire", "", None, ""), 900, 900, detail=dict(HELD), done=False)
    result = TableResult(NAME, planned.plan, (done,), planned.before, planned.before)
    return MaintenanceOutcome(MaintainedTable(NAME, policy), result, score(planned.before, policy, None))


def test_who_holds_what_is_told(outcome: MaintenanceOutcome, capsys: pytest.CaptureFixture[str]) -> None:
    told = [
        f"{NAME}: snapshots stay for {HELD['held_by']}",
        f"{NAME}: {HELD['warning']}",
        f"{NAME}: the ledger could not be filled before the expiry: {HELD['ledger']}",
    ]
    assert list(table_sentences(outcome, dry_run=False))[-3:] == told
    also = outcome_metadata(outcome)["also"].value
    print_done([outcome])
    printed = capsys.readouterr().out
    for sentence in told:
        assert sentence in also
        assert f"  {sentence}\n" in printed


def test_manifests_that_were_left_are_told_and_are_no_problem(outcome: MaintenanceOutcome) -> None:
    assert outcome.result is not None
    left = StepResult(
        Step("manifests", "", None, ""), 30, 30, detail={"lost": "5 times others committed first"}, done=False
    )
    told = replace(outcome, result=replace(outcome.result, done=(left,)))
    assert list(table_sentences(told, dry_run=False))[-1] == (
        f"{NAME}: manifests left to the next run: 5 times others committed first"
    )
    assert told.problems == []


def test_a_plan_names_no_files_that_nobody_has_looked_for(outcome: MaintenanceOutcome) -> None:
    assert outcome.result is not None
    look = Step("orphans", "", None, "Never looked for yet", seconds=10.0)
    plan = replace(outcome.result.plan, steps=(look,))
    told = replace(outcome, result=replace(outcome.result, plan=plan, done=()))
    assert next(table_sentences(told, dry_run=True)).endswith("; would do orphans: 10 s")
    assert plan_rows(plan) == [("orphans", "–", "–", "–", "10 s", "Never looked for yet")]
