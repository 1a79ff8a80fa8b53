"""Publishing a stream's branch: driver, broker, Spark's procedures and judge, a killed `frazil discard`, all real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from jobs.quality.contracts.gate_judge import ContractJudge
from jobs.quality.publishing.gate import Verdict
from jobs.quality.publishing.gated import publish_if_fit
from orchestration.cli.main import main
from tests.helpers.catalogs import database_catalog, hive_catalog, rest_settings
from tests.helpers.topics import read_topic
from tests.integration.branch_rows import on, rows, told
from tests.integration.faults import compact, die
from tests.integration.maintained import maintain
from tests.integration.pipeline import GOOD, ROOT, TRUNCATED, Coordinates, Pipeline
from tests.integration.test_spark_reads import with_catalog
from tests.story.one_session import one_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


@pytest.fixture
def catalog_settings(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any] | None:
    """Settings of a catalog of the kind that is the test's parameter; None for the embedded one."""
    if request.param == "hive":
        return hive_catalog(request.getfixturevalue("hive"))
    if request.param == "postgresql":
        return database_catalog(request.getfixturevalue("database"), tmp_path / "warehouse")
    if request.param == "rest":
        return rest_settings(request.getfixturevalue("rest_catalog").uri, request.getfixturevalue("objects"))
    return None


def frazil(one: Pipeline, *words: str, step: str = "", expect: int = 0) -> int:
    """The status of a command in a process of its own, which is killed at a step."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestration.cli.main", "--home", str(one.home), *words],
        cwd=ROOT,
        env={**os.environ, "FRAZIL_STEPS": f"{step}=kill" if step else "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode in (expect, -signal.SIGKILL), done.stderr
    return done.returncode


def frazil_here(one: Pipeline, *words: str) -> Result:
    """A command in this process."""
    return CliRunner().invoke(main, ["--home", str(one.home), *words])


def publish(one: Pipeline, spark: SparkSession) -> int:
    """The status of `frazil publish`, which leaves the session to the tests after it."""
    with one_session(spark):
        return frazil_here(one, "publish", one.stream).exit_code


def gate(one: Pipeline, *reasons: str) -> str:
    """The outcome of a publication whose verdict is given: unfit if there are reasons."""
    verdict = Verdict(not reasons, reasons, str(len(reasons)), 0)
    return publish_if_fit(
        one.spec(), one.settings(), one.catalog(), "tester", lambda interval: verdict, verdict.judged_by
    ).became


def in_main(one: Pipeline) -> Counter[Coordinates]:
    """How often each record stands in main."""
    columns = "_kafka_topic", "_kafka_partition", "_kafka_offset"
    main_rows = one.catalog().load_table(one.table_name).scan(selected_fields=columns).to_arrow()
    return Counter(zip(*(main_rows.column(name).to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("catalog_settings", ["hive", "postgresql", "rest"], indirect=True)
def test_main_is_compacted_and_expired_between_publications(
    pipeline: Make, spark: SparkSession, catalog_settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = on(pipeline(catalog_settings=catalog_settings), "ingest")
    session, name = with_catalog(spark, one)
    for number in (1, 2):
        one.produce({GOOD: 15})
        one.drain(spark)
        assert publish(one, spark) == 0
        compact(one, spark)
        session.sql(f"DELETE FROM {name} WHERE id = 'p-{number}'").collect()
    # A driver dies on the branch, and its state is lost.
    one.produce({GOOD: 15, TRUNCATED: 1})
    die(one, spark, monkeypatch, "after_anchor_commit")
    one.lose_state()
    one.drain(spark)
    for action in ("compact", "expire"):
        maintain(one, spark, action)
    assert publish(one, spark) == 0
    assert session.table(name).count() == 45 - 2, "what was deleted from main does not come back"
    assert session.sql(f"SELECT * FROM {name} VERSION AS OF 'ingest'").count() == rows(one, "ingest") == 45
    one.assert_exactly_once()
    facts = json.loads(frazil_here(one, "status", one.stream, "--json").stdout)
    assert facts["streams"][0]["branch"]["unpublished_rows"] == 0


@pytest.mark.parametrize("catalog_settings", ["embedded", "hive"], indirect=True)
def test_spark_judges_a_gated_stream_and_what_is_held_is_released_or_discarded(
    pipeline: Make, spark: SparkSession, catalog_settings: dict[str, Any] | None
) -> None:
    one = pipeline(catalog_settings=catalog_settings)
    expected = {"expect_column_values_to_be_between": {"column": "amount", "max_value": 0.3}, "name": "small"}
    one.write_spec(contract={"expectations": [expected]}, publish={"gate": "contract"})
    one.produce({GOOD: 20})
    one.drain(spark)
    assert publish(one, spark) == 0
    assert rows(one) == 20
    one.produce({GOOD: 20, TRUNCATED: 1})
    one.drain(spark)
    assert publish(one, spark) == 1
    one.lose_state()
    assert rows(one) == 20, "31 to 40 are not accepted"
    one.produce({GOOD: 5})
    one.drain(spark)
    assert publish(one, spark) == 1
    assert frazil_here(one, "release", one.stream, "--yes", "--reason", "known").exit_code == 0
    assert rows(one) == 40
    judge = ContractJudge(one.spec(), one.settings(), one.catalog(), lambda: spark, engine="spark")
    found = publish_if_fit(one.spec(), one.settings(), one.catalog(), "tester", judge, judge.judged_by)
    assert (found.became, rows(one)) == ("held", 40)
    assert judge.checked is not None
    assert (judge.checked.engine, judge.checked.rows) == ("spark", 5)
    one.assert_exactly_once()
    assert told(one, "audit")["verdict"] == "complete"

    # The last five are discarded, once, though the command is killed.
    landed = one.landed()
    held = landed - in_main(one)
    discard = "discard", one.stream, "--yes", "--reason", "a load test"
    assert frazil(one, *discard, step="discard_after_letters") == -signal.SIGKILL
    one.lose_state()
    assert rows(one) == 40, "main never shows any of it"
    assert frazil_here(one, *discard).exit_code == 0
    letters = [each for each in one.dead_table().scan().to_arrow().to_pylist() if each["error_class"] == "discarded"]
    assert Counter((each["topic"], each["partition"], each["offset"]) for each in letters) == held
    values = {(one.stream, *at): value for *at, value in read_topic(one.address, one.stream)}
    assert all(values[each["topic"], each["partition"], each["offset"]] == each["value"] for each in letters)
    assert {each["key"][:1] for each in letters} == {b"k"}
    assert all("a load test" in each["message"] for each in letters)
    assert told(one, "audit")["verdict"] == "complete"

    # A replay brings them back, and each is published once.
    assert frazil_here(one, "replay", one.stream, "--reason", "discarded").exit_code == 0
    assert gate(one) == "published"
    assert in_main(one) == landed
    assert rows(one, "ingest") == 50, "the branch keeps the rows that were discarded"
    facts = told(one, "audit", "--full")
    assert (facts["verdict"], facts["problems"]) == ("complete", [])
    assert any("5 of the landed rows were discarded" in each for each in facts["notes"])
    first = letters[0]
    place = "--topic", first["topic"], "--partition", str(first["partition"]), "--offset", str(first["offset"])
    said = json.loads(frazil_here(one, "at", one.stream, *place, "--json").stdout)
    assert [each["state"] for each in said["discarded"]] == ["replayed"]
    assert said["published"]["in_main"] is True
