"""Offsets reset on the real broker and catalog: back, with what lands twice shown first; and ahead, passing over."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from jobs.streaming.supervision.documents.control_request import ControlRequest, write_control
from jobs.tables.commit.history.stamp_history import stamps_along_main
from orchestration.cli.main import main
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def frazil(one: Pipeline, *arguments: str, expect: int = 0) -> str:
    result = CliRunner().invoke(main, ["--home", str(one.home), "reset-offsets", one.stream, *arguments])
    assert result.exit_code == expect, result.output
    assert "Traceback" not in result.output
    return result.output


def facts_of(one: Pipeline, *arguments: str) -> dict[str, Any]:
    return json.loads(frazil(one, *arguments, "--json"))


def counts(one: Pipeline) -> tuple[int, int]:
    return sum(one.landed().values()), sum(one.dead().values())


def test_reset_offsets(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(trigger={"every": "60s"})
    one.produce({GOOD: 96, TRUNCATED: 4})
    assert "no stream has run yet" in frazil(one, "--to", "earliest", expect=1)
    one.drain(spark)
    before = one.table().metadata.current_snapshot_id

    # Wanted running, so it is shown and not done.
    running = facts_of(one, "--to", f"{one.stream}:0=30")
    assert (running["allowed"], running["obstacle"]["next"]) == (
        False,
        f"frazil stop {one.stream} --reason 'reset offsets'",
    )
    assert "is wanted running" in frazil(one, "--to", "earliest", "--reason", "why", "--yes", expect=1)
    write_control(one.folder().store, ControlRequest(mode="stopped"))

    # Back, without doubles: the rows that would land twice are counted, and named to be removed.
    plan = facts_of(one, "--to", f"{one.stream}:0=30")
    assert (plan["offsets_read_again"], plan["offsets_skipped"]) == (20, 0)
    rows, letters = plan["rows_in_range"]["table"], plan["rows_in_range"]["dead_letters"]
    assert (rows + letters, letters) == (20, 2)
    assert plan["complete_through"]["before"] and plan["complete_through"]["after"] is None
    assert f"Next: {plan['command']}" in frazil(one, "--to", f"{one.stream}:0=30")
    assert one.table().metadata.current_snapshot_id == before, "a plan changes nothing"
    sink, dead = plan["delete_first"]
    one.table().delete("_kafka_partition = 0 and _kafka_offset >= 30 and _kafka_offset < 50")
    assert f"WHERE _kafka_topic = '{one.stream}' AND _kafka_partition = 0 AND _kafka_offset >= 30" in sink
    assert f"FROM frazil.{one.dead_name} WHERE stream = '{one.stream}'" in dead

    done = facts_of(one, "--to", f"{one.stream}:0=30", "--reason", "a wrong column", "--yes")
    assert (done["before"], done["after"]) == ({one.stream: {"0": 50}}, {one.stream: {"0": 30}})
    newest = stamps_along_main(one.table().metadata, one.stream)[0][1]
    assert newest.kind == "accept"
    assert newest.note is not None
    assert f": a wrong column · offsets reset: {one.stream}-0 50 to 30" in newest.note
    drained = one.drain(spark)
    assert (drained.counts.read, drained.counts.dead) == (20, 2)
    assert counts(one) == (96, 4 + 2), "the rows were removed first, the dead letters were not"
    assert max(one.landed().values()) == 1

    # Ahead, over records that nobody ever reads; the last record of a partition is kept.
    one.produce({GOOD: 40})
    ahead = facts_of(one, "--to", "latest", "--topic", f"{one.stream}:1", "--reason", "not needed", "--yes")
    assert (ahead["offsets_skipped"], ahead["after"]) == (20, {one.stream: {"1": 70}})
    assert ahead["undo"] == f"frazil reset-offsets {one.stream} --to {one.stream}:1=50 --reason 'undo the reset' --yes"
    assert one.drain(spark).counts.read == 20
    assert counts(one) == (96 + 20, 6)

    # The way back, and by time; what is not there is refused with its bounds.
    assert facts_of(one, *ahead["undo"].split()[3:5])["rows_in_range"] == {"table": 0, "dead_letters": 0}
    assert facts_of(one, "--to", "2020-01-01T00:00:00Z")["after"] == {one.stream: {"0": 0, "1": 0}}
    assert facts_of(one, "--to", "2100-01-01T00:00:00Z")["partitions"][0]["to"] == 70
    refused = frazil(one, "--to", f"{one.stream}:1=71", expect=1)
    assert f"{one.stream}-1 at 71, where Kafka keeps offsets 0 to 70" in refused
    totals = stamps_along_main(one.table().metadata, one.stream)[0][1].totals
    assert (totals.read, totals.landed, totals.dead) == (100 + 20 + 20, 96 + 18 + 20, 4 + 2)
