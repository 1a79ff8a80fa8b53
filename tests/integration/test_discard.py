"""Discarding what a gate holds: real driver, broker and catalog, and a `frazil discard` that is killed at each step."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from jobs.publish.gate import Verdict
from jobs.publish.gated import publish_if_fit
from orchestration.cli.main import main
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline
from tests.integration.test_branch import rows, told
from tests.integration.test_publish import frazil
from tests.integration.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

STEPS = "discard_after_mark", "discard_before_letters", "discard_after_letters", "discard_after_commit"


def gate(one: Pipeline, *reasons: str) -> str:
    """Have the interval judged, for which Great Expectations is not needed here; what became of it."""
    verdict = Verdict(not reasons, reasons, str(len(reasons)), 0)
    return publish_if_fit(
        one.spec(), one.settings(), one.catalog(), "tester", lambda interval: verdict, verdict.judged_by
    ).became


def frazil_here(one: Pipeline, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(one.home), *words])


def discarded(one: Pipeline) -> list[dict[str, Any]]:
    found = one.dead_table().scan().to_arrow().to_pylist()
    return [each for each in found if each["error_class"] == "discarded"]


def test_killed_at_each_step_it_discards_once_and_replays_bring_it_back(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline()
    not_null = {"expect_column_values_to_not_be_null": {"column": "amount"}}
    one.write_spec(contract={"expectations": [not_null]}, publish={"gate": "contract"})
    one.produce({GOOD: 10, TRUNCATED: 2})
    one.drain(spark)
    assert gate(one, "amounts are unusual") == "held"
    held = one.landed()
    assert held.total() == 10
    for step in STEPS:
        assert frazil(one, "discard", one.stream, "--reason", "a load test", step=step) == -signal.SIGKILL
        one.lose_state()
        assert rows(one) == 0, "main never shows any of it"
    assert frazil_here(one, "discard", one.stream, "--reason", "again").exit_code == 1, "all of it is done"
    letters = discarded(one)
    assert Counter((each["topic"], each["partition"], each["offset"]) for each in letters) == held
    values = {(one.stream, *at): value for *at, value in read_topic(one.address, one.stream)}
    assert all(values[each["topic"], each["partition"], each["offset"]] == each["value"] for each in letters)
    assert all("a load test; amounts are unusual" in each["message"] for each in letters)
    assert {each["key"][:1] for each in letters} == {b"k"}
    assert told(one, "audit")["verdict"] == "complete"
    first = letters[0]
    place = "--topic", first["topic"], "--partition", str(first["partition"]), "--offset", str(first["offset"])
    said = frazil_here(one, "at", one.stream, *place).stdout
    assert "is a row" in said
    assert "has none of it: it was discarded" in said
    assert frazil_here(one, "replay", one.stream, "--reason", "discarded").exit_code == 0
    assert gate(one) == "published"
    assert Counter(in_main(one)) == held, "each is in main, once"
    assert rows(one, "ingest") == 20, "the branch keeps the rows that were discarded"
    facts = told(one, "audit", "--full")
    assert (facts["verdict"], facts["problems"]) == ("complete", [])
    assert any("10 of the rows that were landed were discarded" in each for each in facts["notes"])
    said = json.loads(frazil_here(one, "at", one.stream, *place, "--json").stdout)
    assert [each["state"] for each in said["discarded"]] == ["replayed"]
    assert said["published"]["in_main"] is True


def in_main(one: Pipeline) -> list[tuple[str, int, int]]:
    columns = "_kafka_topic", "_kafka_partition", "_kafka_offset"
    main_rows = one.catalog().load_table(one.table_name).scan(selected_fields=columns).to_arrow()
    return list(zip(*(main_rows.column(name).to_pylist() for name in columns), strict=True))
