"""A stream that writes a branch of its table, with the real broker, Spark and Iceberg's readers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from jobs.commit.branch import on_branch
from jobs.commit.errors import RolledBackError
from orchestration.cli.main import main
from tests.integration.faults import append_nothing, compact, die
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline
from tests.integration.test_spark_reads import with_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def on(one: Pipeline, branch: str) -> Pipeline:
    one.write_spec(table={"name": one.table_name, "partition_by": ["day(created_at)"], "branch": branch})
    return one


def rows(one: Pipeline, branch: str = "main") -> int:
    return on_branch(one.catalog().load_table(one.table_name), branch).scan().count()


def told(one: Pipeline, *words: str) -> dict:
    result = CliRunner().invoke(main, ["--home", str(one.home), *words, one.stream, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_rows_land_on_the_branch_once_whatever_happens(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = on(pipeline(), "ingest")
    one.produce({GOOD: 40, TRUNCATED: 4})
    one.run_and_die("after_anchor_commit")
    for step in ("inside_claim", "inside_anchor_commit", "before_commit", "after_commits"):
        one.produce({GOOD: 10})
        die(one, spark, monkeypatch, step)
    append_nothing(one, one.table_name)
    one.lose_state()
    one.produce({GOOD: 10})
    one.drain(spark)
    one.assert_exactly_once()
    assert rows(one) == 0, "readers of main see nothing of it"
    assert rows(one, "ingest") == 90
    session, name = with_catalog(spark, one)
    assert session.sql(f"SELECT * FROM {name} VERSION AS OF 'ingest'").count() == 90
    assert session.table(name).count() == 0
    audit = told(one, "audit")
    assert audit["verdict"] == "complete"
    assert audit["problems"] == []


def test_main_is_compacted_and_expired_while_the_branch_grows(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    for _ in range(3):
        one.produce({GOOD: 10})
        one.drain(spark)
    on(one, "ingest").produce({GOOD: 10})
    one.drain(spark)
    assert compact(one, spark) >= 3
    session, _ = with_catalog(spark, one)
    before = len(one.table().metadata.snapshots)
    arguments = f"table => '{one.table_name}', older_than => TIMESTAMP '2100-01-01 00:00:00', retain_last => 1"
    session.sql(f"CALL frazil.system.expire_snapshots({arguments})").collect()
    assert len(one.table().metadata.snapshots) < before
    one.produce({GOOD: 10})
    one.drain(spark)
    one.assert_exactly_once()
    assert (rows(one), rows(one, "ingest")) == (30, 50)


def test_another_branch_in_the_file(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 20})
    one.drain(spark)
    on(one, "ingest").produce({GOOD: 10})
    one.run_and_die("after_former_branch_claim")
    assert one.drain(spark).counts.read == 10, "the branch begins where main stands"
    one.assert_exactly_once()
    on(one, "main")
    with pytest.raises(RolledBackError, match="on branch ingest"):
        one.drain(spark)
    session, _ = with_catalog(spark, one)
    session.sql(f"CALL frazil.system.fast_forward('{one.table_name}', 'main', 'ingest')").collect()
    one.produce({GOOD: 5})
    assert one.drain(spark).counts.read == 5
    one.assert_exactly_once()
    assert rows(one) == 35
