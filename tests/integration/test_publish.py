"""Publishing a stream's branch: drivers, a killed `frazil publish`, readers and procedures of Spark, all real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from jobs.contract.gate_judge import ContractJudge
from jobs.publish.gated import publish_if_fit
from orchestration.cli.main import main
from tests.integration.faults import compact
from tests.integration.pipeline import GOOD, ROOT, TRUNCATED, Pipeline
from tests.integration.test_branch import on, rows, told
from tests.integration.test_spark_reads import with_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def publish(one: Pipeline, step: str = "") -> int:
    """`frazil publish`, as a process of its own where it is killed at a step; its status."""
    if step:
        return frazil(one, "publish", one.stream, step=step)
    return CliRunner().invoke(main, ["--home", str(one.home), "publish", one.stream]).exit_code


def frazil(one: Pipeline, *words: str, step: str = "", expect: int = 0) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(one.home), *words],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_STEPS": f"{step}=kill" if step else "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode in (expect, -signal.SIGKILL), done.stderr
    return done.returncode


def test_killed_at_each_step_it_publishes_once(pipeline: Make, spark: SparkSession) -> None:
    one = on(pipeline(), "ingest")
    landed = 0
    for step in ("publish_before_commit", "inside_publish", "publish_after_commit"):
        one.produce({GOOD: 20, TRUNCATED: 1})
        one.drain(spark)
        before, landed = rows(one), landed + 20
        assert publish(one, step) == -signal.SIGKILL
        assert rows(one) == (landed if step == "publish_after_commit" else before)
        one.lose_state()
        assert publish(one) == 0
        assert rows(one) == landed
    one.assert_exactly_once()
    session, name = with_catalog(spark, one)
    assert session.table(name).count() == session.table(name).select("id").distinct().count() == landed
    assert told(one, "audit")["verdict"] == "complete"


def test_main_is_compacted_and_expired_between_publications(pipeline: Make, spark: SparkSession) -> None:
    one = on(pipeline(), "ingest")
    session, name = with_catalog(spark, one)
    for number in range(1, 5):
        one.produce({GOOD: 15})
        one.drain(spark)
        assert publish(one) == 0
        compact(one, spark)
        session.sql(f"DELETE FROM {name} WHERE id = 'p-{number}'").collect()
    one.produce({GOOD: 15})
    one.drain(spark)
    # In a process of its own: it ends its JVM.
    assert frazil(one, "maintain", one.table_name) == 0
    assert publish(one) == 0
    assert session.table(name).count() == 75 - 4, "what was deleted from main does not come back"
    assert rows(one, "ingest") == 75
    one.assert_exactly_once()
    facts = json.loads(CliRunner().invoke(main, ["--home", str(one.home), "status", one.stream, "--json"]).stdout)
    assert facts["streams"][0]["branch"]["unpublished_rows"] == 0


def test_a_gated_stream_with_a_real_driver_and_spark_as_the_judge(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    expected = {"expect_column_values_to_be_between": {"column": "amount", "max_value": 0.3}, "name": "small"}
    one.write_spec(contract={"expectations": [expected]}, publish={"gate": "contract"})
    one.produce({GOOD: 20})
    one.drain(spark)
    assert frazil(one, "publish", one.stream, step="publish_after_verdict") == -signal.SIGKILL
    assert frazil(one, "publish", one.stream) == 0
    assert rows(one) == 20
    one.produce({GOOD: 20, TRUNCATED: 1})
    one.drain(spark)
    assert frazil(one, "publish", one.stream, step="inside_hold") == -signal.SIGKILL
    one.lose_state()
    assert frazil(one, "publish", one.stream, expect=1) == 1
    assert rows(one) == 20, "31 to 40 are not accepted"
    one.produce({GOOD: 5})
    one.drain(spark)
    assert frazil(one, "publish", one.stream, expect=1) == 1
    assert frazil(one, "release", one.stream, "--reason", "known") == 0
    assert rows(one) == 40
    judge = ContractJudge(one.spec(), one.settings(), one.catalog(), lambda: spark, engine="spark")
    found = publish_if_fit(one.spec(), one.settings(), one.catalog(), "tester", judge, judge.judged_by)
    assert (found.became, rows(one)) == ("held", 40)
    assert judge.checked is not None
    assert (judge.checked.engine, judge.checked.rows) == ("spark", 5)
    one.assert_exactly_once()
    assert told(one, "audit")["verdict"] == "complete"
