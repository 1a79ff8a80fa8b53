"""`frazil maintain` where no table needs a JVM: plans, what is skipped and why, and what it says of mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestration.cli.main import main
from tests.unit.maintenance.metadata_tables import MB
from tests.unit.orchestration.deployments import deployment_in
from tests.unit.orchestration.maintain_deployment import DEAD, OTHER, SINK, Tables


def frazil(home: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(main, ["--home", str(home), *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Traceback" not in result.output
    return result


def facts(tables: Tables, *arguments: str) -> list[dict[str, Any]]:
    return json.loads(frazil(tables.home, "maintain", "--json", *arguments).stdout)["tables"]


@pytest.mark.parametrize("option", ["--plan", "--dry-run"])
def test_the_plan(tables: Tables, option: str) -> None:
    tables.add(200)
    result = frazil(tables.home, "maintain", option)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"{SINK}: score ")
    assert "would do compact: 200 → " in lines[0]
    assert lines[1].split() == ["action", "where", "files", "bytes", "about", "reason"]
    assert lines[2].startswith("compact  created_at_day=2024-10-04  200 → 2  200 MiB")
    assert any(line.startswith("  no ") for line in lines), "what is not done, and why"
    assert any(line.startswith(f"{DEAD}: score 100, nothing is due") for line in lines)
    assert lines[-1] == "1 of 2 tables have something to do; nothing was changed."


def test_the_facts(tables: Tables) -> None:
    tables.add(200)
    sink, dead = facts(tables, "--plan")
    assert (sink["table"], sink["stream"], sink["role"]) == (SINK, "payments", "sink")
    assert (sink["before"]["data_files"], sink["after"], sink["done"], sink["problems"]) == (200, None, [], [])
    (step,) = [step for step in sink["plan"]["steps"] if step["action"] == "compact"]
    assert step["partition"] == {"created_at_day": "2024-10-04"}
    assert step["files_before"] == 200
    assert sink["plan"]["skips"]
    assert (dead["role"], dead["score_before"], dead["plan"]["steps"]) == ("dead_letters", 100, [])


def test_healthy_tables_are_left_alone(tables: Tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Spark could not even start.
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    tables.add(3, size=128 * MB)
    result = frazil(tables.home, "maintain")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "0 of 2 tables were maintained, 0 failed."


def test_a_failing_table_ends_with_status_1_and_hides_no_other(tables: Tables) -> None:
    tables.add(200)
    tables.break_manifest()
    tables.add(200, table=DEAD)
    result = frazil(tables.home, "maintain", "--plan")
    assert result.exit_code == 1
    assert f"Error: table {SINK}: " in result.stderr
    assert f"{DEAD}: score " in result.stdout
    assert "would do compact" in result.stdout


def test_without_java_it_says_so(tables: Tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    tables.add(200)
    result = frazil(tables.home, "maintain", "payments", "--only", "compact")
    assert result.exit_code == 1
    assert f"JAVA_HOME is {tmp_path / 'nowhere'}" in result.stderr


def test_names(tables: Tables) -> None:
    tables.make_other()
    assert [each["table"] for each in facts(tables, "--plan")] == [SINK, DEAD]
    assert [each["table"] for each in facts(tables, "--plan", "payments")] == [SINK, DEAD]
    assert [each["table"] for each in facts(tables, "--plan", DEAD)] == [DEAD]
    assert [each["table"] for each in facts(tables, "--plan", OTHER, SINK)] == [OTHER, SINK]
    tables.in_settings("{name: lake.*, enabled: false}")
    assert [each["table"] for each in facts(tables, "--plan")] == [SINK, DEAD, OTHER]


@pytest.mark.parametrize(
    ("name", "then"),
    [("orders.paymnts", SINK), ("paymens", "payments"), ("nowhere.at_all", "frazil maintain --plan, which lists them")],
)
def test_an_unknown_table_names_the_nearest(tables: Tables, name: str, then: str) -> None:
    result = frazil(tables.home, "maintain", name)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"Error: '{name}' is neither a table of catalog frazil nor a stream." in result.stderr
    assert then in result.stderr


def test_a_table_that_no_run_has_made_yet(tables: Tables, tmp_path: Path) -> None:
    (tables.home / "streams" / "refunds.yaml").write_text(
        "stream: refunds\nsource: {topics: [refunds]}\ndecode: {value: json, schema: id string}\n"
        "table: {name: orders.refunds}\n"
    )
    assert [each["table"] for each in facts(tables, "--plan")] == [SINK, DEAD]
    result = frazil(tables.home, "maintain", "refunds")
    assert result.exit_code == 1
    assert "stream refunds: table orders.refunds does not exist yet." in result.stderr
    assert "Next: frazil run refunds" in result.stderr
    fresh = frazil(deployment_in(tmp_path / "fresh", "payments"), "maintain")
    assert fresh.exit_code == 1
    assert "no stream has run yet" in fresh.stderr


def test_actions(tables: Tables) -> None:
    tables.add(200)
    (sink, _) = facts(tables, "--plan", "--only", "expire")
    assert {step["action"] for step in sink["plan"]["steps"]} <= {"expire"}
    assert frazil(tables.home, "maintain", "--only", "compct").exit_code == 2


def test_a_policy_that_contradicts_itself_is_told_and_nothing_is_done(tables: Tables) -> None:
    tables.add(200)
    tables.in_settings(f"{{name: {SINK}, expire: {{keep: 2h, time_travel: 3d}}}}")
    for command in (["maintain", "--plan"], ["validate"]):
        result = frazil(tables.home, *command)
        assert result.exit_code == 1
        assert "time_travel" in result.output
