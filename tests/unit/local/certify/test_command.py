"""The command before it starts anything: what it refuses, and how it shows what is under way."""

from __future__ import annotations

import io
from pathlib import Path

from click.testing import CliRunner
from rich.console import Console

from jobs.local.certify.scenario_plan import plan_scenarios, select_steps
from orchestration.cli.local.certify import _Progress
from orchestration.cli.main import main


def test_an_unknown_step_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--home", str(tmp_path), "certify", "--steps", "after_task"])
    assert result.exit_code == 1
    assert "There is no step 'after_task'." in result.output
    assert "did you mean after_tasks?" in result.output
    assert list(tmp_path.iterdir()) == [], "nothing was made for it"


def test_executors_are_killed_on_a_cluster_only(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--home", str(tmp_path), "certify", "--steps", "all,executor"])
    assert result.exit_code == 1
    assert "inside_tasks: kills executors of a cluster, and these settings' drivers have none." in result.output
    assert "frazil certify --settings FILE" in result.output


def test_its_settings_have_to_be_there(tmp_path: Path) -> None:
    missing = tmp_path / "other.yaml"
    result = CliRunner().invoke(main, ["--home", str(tmp_path), "certify", "--settings", str(missing)])
    assert result.exit_code == 1
    assert "other.yaml" in result.output


def test_it_prints_a_line_per_trial() -> None:
    scenarios = plan_scenarios(select_steps("after_tasks"), 2, 1)
    output = io.StringIO()
    progress = _Progress(Console(file=output, width=200), scenarios)
    for number in (1, 2):
        for waits_for in ("a driver starts", "waits for the first commit"):
            progress.show(number, "after_tasks", waits_for)
    progress.show(3, "the end", "everything is compared")
    lines = output.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("trial 1 of 2: after_tasks (0 s")
    assert "s left" in lines[1]
    assert lines[2].startswith("the end")
