"""Contract of a routed stream: the command with Spark as its engine, and pandas beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from jobs.increment.validated_position import validated_position
from orchestration.cli.main import main
from tests.integration.pipeline import GOOD, ROOT, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


def check(made: Pipeline, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(made.home), "check", made.stream, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
    )


def facts(made: Pipeline, *arguments: str) -> list[dict[str, Any]]:
    """Of a check in this process, as a start of Great Expectations is dear, whose outcome is not perfect."""
    done = CliRunner().invoke(main, ["--home", str(made.home), "check", made.stream, "--json", *arguments])
    assert done.exit_code == 1 and done.stdout, done.output
    return json.loads(done.stdout)["tables"]


def by_name(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in table["expectations"]}


@pytest.fixture(autouse=True)
def shared_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check in this process leaves the JVM that tests share alone."""
    monkeypatch.setattr("orchestration.cli.sql_session.end_spark", lambda: None)


@pytest.fixture
def made(broker: str, tmp_path: Path, request: pytest.FixtureRequest) -> Pipeline:
    pipeline = Pipeline(tmp_path / "home", broker, f"contract_{abs(hash(request.node.name)) % 10**6}", partitions=1)
    pipeline.create_topic()
    return pipeline


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
