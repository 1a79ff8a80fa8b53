"""A contract on a real stream: the command, both engines, a kill, and checks that a real Dagster starts by itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from jobs.increment.validated_position import ValidatedPosition, validated_position
from orchestration.cli.dev.services import DagsterServices
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, ROOT, TRUNCATED, Pipeline
from tests.integration.test_dagster import table_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(500)]

CONTRACT: dict[str, Any] = {
    "expectations": [
        {"expect_column_values_to_not_be_null": {"column": "id"}, "name": "id_is_set"},
        {"expect_column_values_to_be_between": {"column": "amount", "max_value": 0.05}, "name": "amount_is_small"},
        {
            "expect_column_values_to_match_regex": {"column": "id", "regex": "^p-[0-9]$"},
            "severity": "warning",
            "name": "id_is_short",
        },
        {"frazil_keys_to_be_unique": {"columns": ["id"]}, "name": "id_is_unique"},
    ],
    "dead_letters": [{"expect_table_row_count_to_be_between": {"max_value": 1}, "name": "few_letters"}],
}
EVALUATIONS = """query($key: AssetKeyInput!, $name: String!) { assetCheckExecutions(
  assetKey: $key, checkName: $name, limit: 5) { runId evaluation { success severity description metadataEntries { label
    ... on IntMetadataEntry { intValue } ... on FloatMetadataEntry { floatValue } ... on TextMetadataEntry { text }
    ... on BoolMetadataEntry { boolValue } ... on TableMetadataEntry { table { records } } } } } }"""


def check(made: Pipeline, *arguments: str, steps: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(made.home), "check", made.stream, *arguments],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_STEPS": steps, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )


def facts(made: Pipeline, *arguments: str) -> list[dict[str, Any]]:
    """Of a check in this process, as a start of Great Expectations is dear, whose outcome is not perfect."""
    done = CliRunner().invoke(main, ["--home", str(made.home), "check", made.stream, "--json", *arguments])
    assert done.exit_code == 1 and done.stdout, done.output
    return json.loads(done.stdout)["tables"]


def history(made: Pipeline) -> dict[str, list[dict[str, Any]]]:
    done = CliRunner().invoke(main, ["--home", str(made.home), "check", made.stream, "--history", "--json"])
    assert done.exit_code == 0, done.output
    return {each["name"]: each["results"] for each in json.loads(done.stdout)["expectations"]}


def recorded(made: Pipeline) -> ValidatedPosition | None:
    return validated_position(made.table().metadata.properties, made.stream)


def by_name(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in table["expectations"]}


@pytest.fixture(autouse=True)
def shared_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check in this process leaves the JVM that tests share alone."""
    monkeypatch.setattr("orchestration.cli.check.command.end_spark", lambda: None)


@pytest.fixture
def made(broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    pipeline = Pipeline(tmp_path / "home", broker, f"contract_{abs(hash(request.node.name)) % 10**6}", partitions=1)
    pipeline.write_spec(contract=CONTRACT)
    pipeline.create_topic()
    return pipeline


def test_a_contract_is_checked_on_what_is_new(made: Pipeline, spark: SparkSession) -> None:
    made.produce({GOOD: 8, TRUNCATED: 2})
    made.drain(spark)
    killed = check(made, steps="check_before_record=kill")
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    assert recorded(made) is None

    table, letters = facts(made)
    assert (table["rows"], table["engine"], table["recorded"]) == (8, "pandas", True)
    found = by_name(table)
    assert {name: each["passed"] for name, each in found.items()} == {
        "id_is_set": True, "amount_is_small": False, "id_is_short": True, "id_is_unique": True,
    }  # fmt: skip
    # 0.06, 0.07 and 0.08 are the records at the offsets 5, 6 and 7.
    assert (found["amount_is_small"]["unexpected"], found["amount_is_small"]["rows"]) == (3, 8)
    places = {each["coordinates"]["_kafka_offset"] for each in found["amount_is_small"]["samples"]}
    assert places == {5, 6, 7}
    assert letters["rows"] == 2 and not by_name(letters)["few_letters"]["passed"]
    position = recorded(made)
    assert position is not None and position.summary.failed == {"critical": 1}

    made.produce({GOOD: 2})
    made.drain(spark)
    table, letters = facts(made)
    assert table["rows"] == 2 and table["increment"]["found_by"] == "files"
    assert by_name(letters)["few_letters"]["passed"] and letters["rows"] == 0, "none is new"
    found = by_name(table)
    # The ids p-11 and p-12 are longer, their amounts greater.
    assert found["amount_is_small"]["unexpected"] == found["id_is_short"]["unexpected"] == 2
    assert found["id_is_unique"]["passed"]
    # The check that was killed had found the same, and the history has it.
    kept = [(each["rows_checked"], each["share"]) for each in history(made)["amount_is_small"]]
    assert kept == [(8, 3 / 8), (8, 3 / 8), (2, 1.0)]


def test_each_table_of_a_route_is_checked_by_spark_as_by_pandas(made: Pipeline, spark: SparkSession) -> None:
    """Two tables share a topic and a contract: each has increments, outcomes and a position of its own."""
    odd, even = f"{made.table_name}_odd", f"{made.table_name}_even"
    tables: dict[str, list[dict[str, Any]]] = {
        odd: [
            {"expect_column_values_to_be_between": {"column": "amount", "max_value": 0.05}, "name": "odd_is_small"},
            {"frazil_keys_to_be_unique": {"columns": ["id"]}, "name": "odd_is_unique"},
        ],
        even: [
            {"expect_column_values_to_match_regex": {"column": "id", "regex": "^p-[0-9]$"}, "name": "even_is_short"}
        ],
    }
    routes = [{"match": "p-.*[13579]", "table": odd}, {"match": "p-.*[02468]", "table": even}]
    made.write_spec(route={"by": "id", "tables": routes}, contract={"tables": tables})
    made.produce({GOOD: 12, TRUNCATED: 1})
    made.drain(spark)
    # Nothing counts as checked yet, so one of the two is the check itself: a start of Spark's SQL is dear.
    dry = facts(made, "--all", "--dry-run", "--engine", "pandas")
    by_spark = check(made, "--json", "--engine", "spark")
    assert by_spark.returncode == 1, by_spark.stdout + by_spark.stderr
    checked = json.loads(by_spark.stdout)["tables"]
    for one, other in zip(dry, checked, strict=True):
        assert one["table"] == other["table"] and one["rows"] == other["rows"]
        for name, each in by_name(one).items():
            twin = by_name(other)[name]
            for what in ("passed", "problem", "rows", "unexpected", "share"):
                assert each[what] == twin[what], (name, what)
            assert {json.dumps(row) for row in each["samples"]} == {json.dumps(row) for row in twin["samples"]}, name
    by_table = {each["table"]: each for each in checked}
    assert {name: by_table[name]["rows"] for name in tables} == {odd: 6, even: 6}
    assert {by_table[name]["engine"] for name in tables} == {"spark"}
    small = by_name(by_table[odd])["odd_is_small"]
    # The ids run from p-1 to p-12, and an amount is a hundredth of its number: 7, 9 and 11 are too much.
    assert (small["passed"], small["unexpected"], small["rows"]) == (False, 3, 6)
    assert by_name(by_table[odd])["odd_is_unique"]["passed"]
    assert by_name(by_table[even])["even_is_short"]["unexpected"] == 2
    # What counts as checked is each table's own.
    for name in tables:
        position = validated_position(made.catalog().load_table(name).metadata.properties, made.stream)
        assert position is not None and position.summary.rows == 6
    made.produce({GOOD: 1})
    made.drain(spark)
    by_table = {each["table"]: each for each in facts(made)}
    # The cut record was the 13th.
    assert {name: by_table[name]["rows"] for name in tables} == {odd: 0, even: 1}


@pytest.fixture
def services(made: Pipeline) -> Iterator[DagsterServices]:
    made.write_spec(contract={**CONTRACT, "check": {"after_snapshots": 1}})
    running = DagsterServices(Deployment.at(made.home))
    running.start()
    try:
        wait_for(lambda: running.api.find(table_key(made)) is not None, "the code location", 120)
        yield running
    finally:
        running.stop()


def test_dagster_checks_by_itself_what_has_come(services: DagsterServices, made: Pipeline, spark: SparkSession) -> None:
    made.produce({GOOD: 12})
    made.drain(spark)
    key = {"path": table_key(made)}

    def evaluations(name: str) -> list[dict[str, Any]]:
        asked = services.api.ask(EVALUATIONS, key=key, name=name)["assetCheckExecutions"]
        return [{**each["evaluation"], "runId": each["runId"]} for each in asked if each["evaluation"] is not None]

    # The run tells one expectation after the other; this is the last one of the table.
    wait_for(lambda: bool(evaluations("id_is_unique")), "the check that the sensor asks for", 200)
    newest = evaluations("id_is_short")[0]
    run_id = newest["runId"]
    entries: dict[str, Any] = {
        entry.pop("label"): next(iter(entry.values()), None) for entry in newest["metadataEntries"]
    }
    assert not newest["success"] and newest["severity"] == "WARN"
    assert (entries["rows_checked"], entries["unexpected_rows"], entries["unexpected_share"]) == (12, 3, 0.25)
    assert entries["counts_as_checked"] is True
    assert len([json.loads(each) for each in entries["samples"]["records"]]) == 3
    (critical,) = evaluations("amount_is_small")
    assert not critical["success"] and critical["severity"] == "ERROR"
    (passed,) = evaluations("id_is_unique")
    assert passed["success"]
    position = recorded(made)
    assert position is not None and position.summary.rows == 12
    (kept,) = history(made)["id_is_short"]
    assert kept["by"] == f"Dagster, run {run_id}" and (kept["rows"], kept["share"]) == (12, 0.25)
