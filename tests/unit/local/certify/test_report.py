"""What a certificate adds up to, and how it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jobs.config.settings.settings import Settings, load_settings
from jobs.local.certify.comparison import Comparison
from jobs.local.certify.report import (
    markdown_report,
    not_tried,
    refused_steps,
    report_facts,
    write_report,
)
from jobs.local.certify.results import CertificateResults, ScenarioResult
from jobs.local.certify.scenario_plan import Scenario, plan_scenarios, select_steps
from jobs.local.certify.workspace import settings_shown

TRIALS = plan_scenarios(select_steps("after_tasks,before_claim,asleep"), 2, 5)


def passed() -> CertificateResults:
    outcome = CertificateResults(TRIALS, final=Comparison(90, 5, 4, 1, ()), produced=100, seconds=61.0)
    for scenario in TRIALS:
        seconds = {"after_tasks": 10.0 + scenario.number, "asleep": 99.0}.get(scenario.step)
        replayed = 7 if scenario.step == "after_tasks" else 0
        outcome.results.append(ScenarioResult(scenario, scenario.number, 1.0, seconds, replayed))
    return outcome


def told(outcome: CertificateResults, tmp_path: Path) -> dict[str, object]:
    settings = Settings.embedded(tmp_path)
    return report_facts(
        outcome,
        run="r",
        seed=5,
        repeat="frazil certify --seed 5",
        settings=settings_shown(settings) | {"tables_in": "file"},
        not_tried=not_tried(settings, TRIALS),
    )


def test_a_certificate_that_passed(tmp_path: Path) -> None:
    outcome = passed()
    facts = told(outcome, tmp_path)
    assert outcome.passed
    assert facts["passed"] is True
    assert facts["kills"] == len(TRIALS) - 1, "one of them only sleeps"
    rows = {row.step: row for row in outcome.rows()}
    assert rows["after_tasks"].kills == 2
    assert rows["after_tasks"].passed
    assert rows["after_tasks"].replayed == 7
    assert rows["after_tasks"].worst == 10.0 + max(t.number for t in TRIALS if t.step == "after_tasks")
    assert rows["before_claim"].median is None
    # How long a lease takes to run out is no time to recover from a kill.
    assert max(outcome.recoveries) < 99
    text = markdown_report(facts, outcome)
    assert "# Certificate r: passed" in text
    assert "| `after_tasks` | commit | 2 | pass |" in text
    assert "| `before_claim` | take over | 1 | pass | – | – | 0 |" in text
    assert "each exactly once" in text
    assert "`frazil certify --seed 5`" in text
    assert "(sql, sqlite), tables in a folder, state in a folder, tasks in the drivers." in text
    assert "- executors of a cluster: the drivers ran their tasks on their own machine" in text
    (others,) = [line for line in text.splitlines() if line.startswith("- steps that were not asked for: ")]
    assert "before_commit" in others
    assert "after_tasks" not in others
    assert "inside_tasks" not in others


def test_what_readers_of_a_mirror_have_seen_is_told(tmp_path: Path) -> None:
    outcome = passed()
    assert "The mirror" not in markdown_report(told(outcome, tmp_path), outcome)
    outcome.mirror_snapshots = 31
    text = markdown_report(told(outcome, tmp_path), outcome)
    assert "The mirror: main has shown 31 snapshots, each matches its changes." in text
    # What went wrong elsewhere says nothing of the mirror.
    outcome.problems.append("a pending record exists after the last stop")
    assert "31 snapshots, each matches" in markdown_report(told(outcome, tmp_path), outcome)
    outcome.mirror_problems = 1
    assert "31 snapshots, not each matches" in markdown_report(told(outcome, tmp_path), outcome)


def test_a_certificate_that_failed(tmp_path: Path) -> None:
    outcome = passed()
    outcome.final = None
    outcome.results = outcome.results[:2]
    outcome.results[-1].problems.append("3 records lost from the table")
    facts = told(outcome, tmp_path)
    assert facts["passed"] is False
    last = outcome.results[-1].scenario
    assert facts["problems"] == [f"trial {last.number} ({last.step}): 3 records lost from the table"]
    text = markdown_report(facts, outcome)
    assert "FAILED" in text
    assert "FAIL |" in text
    assert "3 records lost from the table" in text
    assert "not run" in text
    assert "each exactly once" not in text


def test_of_a_cluster_it_says_whose_processes_were_left_alone(tmp_path: Path) -> None:
    (tmp_path / "frazil.yaml").write_text("spark: {master: 'spark://spark.internal:7077'}\n")
    settings = load_settings(None, home=tmp_path)
    scenarios = plan_scenarios(select_steps("all"), 1, 1)
    said = "\n".join(not_tried(settings, scenarios))
    assert "executors: none was killed" in said
    assert "workers and the master of the cluster" in said
    assert "not asked for" not in said
    with_them = plan_scenarios(select_steps("all,executor"), 1, 1)
    assert "executors" not in "\n".join(not_tried(settings, with_them))
    assert refused_steps(settings, with_them) == []
    assert refused_steps(Settings.embedded(tmp_path), with_them) == ["inside_tasks"]


def test_what_was_not_carried_out_does_not_pass() -> None:
    assert not replace_outcome(results=[]).passed
    assert not replace_outcome(final=None).passed
    assert not replace_outcome(problems=["a pending record exists"]).passed
    outcome = passed()
    outcome.results[0].killed_at = None
    assert not outcome.passed, "a driver that was not killed proves nothing"


def test_both_reports_are_written(tmp_path: Path) -> None:
    outcome = passed()
    facts = told(outcome, tmp_path)
    markdown, document = write_report(tmp_path / "reports", facts, outcome)
    assert markdown.read_text() == markdown_report(facts, outcome)
    assert json.loads(document.read_text())["trials"][0]["step"] == TRIALS[0].step
    assert json.loads(document.read_text())["records"] == {
        "produced": 100,
        "landed": 90,
        "dead": 5,
        "tombstones": 4,
        "passed_over": 1,
        "added_values": 0,
    }


def test_a_trial_in_json_says_what_was_armed() -> None:
    facts = ScenarioResult(Scenario(3, "inside_claim", "early", "inside_claim", passes=2), 4, 1.0, 2.3456).facts()
    assert (facts["number"], facts["at"], facts["passes"], facts["seconds"]) == (3, "inside_claim", 2, 2.346)
    assert facts["passed"] is True


def replace_outcome(**changes: object) -> CertificateResults:
    return replace(passed(), **changes)  # pyright: ignore[reportArgumentType]
