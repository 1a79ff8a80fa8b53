"""What people are told of a table that was maintained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from jobs.maintain.health_score import score
from jobs.maintain.maintenance_run import MaintenanceOutcome
from jobs.maintain.plan import Step
from jobs.maintain.results import StepResult, TableResult
from jobs.spec.maintained_tables import MaintainedTable
from jobs.spec.maintenance_policy import Policy
from orchestration.cli.maintain import print_done
from orchestration.jobs.maintain.metadata import outcome_metadata
from orchestration.jobs.maintain.report import plan_rows, table_sentences
from tests.helpers.lake import NAME, Lake

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
