"""The command line against the real broker, Spark and catalog; and what Ctrl-C leaves behind: nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.commit.errors import ToleranceError
from tests.helpers.waiting import wait_for
from tests.integration.marked import Marked
from tests.integration.pipeline import GOOD, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def frazil(home: Path, *arguments: str, expect: int = 0) -> str:
    status, output, errors = Marked(home, arguments).finish()
    assert status == expect, errors + output
    assert "Traceback" not in errors
    return output


def facts_of(home: Path, *arguments: str) -> dict[str, Any]:
    return json.loads(frazil(home, *arguments, "--json"))


def test_a_stream_from_validate_to_status(pipeline: Callable[..., Pipeline]) -> None:
    made = pipeline()
    before = frazil(made.home, "validate")
    assert f"topic {made.stream} (2 partitions) exists" in before
    assert f"not checked {made.stream}: table: table {made.table_name} is not in catalog frazil yet" in before
    assert facts_of(made.home, "status")["streams"][0]["state"] == "never ran"

    made.produce({GOOD: 950, TRUNCATED: 30, TOMBSTONE: 20})
    assert facts_of(made.home, "status")["streams"][0]["lag"] == 1000
    facts = facts_of(made.home, "run", made.stream)
    assert facts["records"] == {"read": 1000, "landed": 950, "dead": 30, "tombstones": 20, "filtered": 0}
    assert facts["adds_up"] is True
    assert facts["dead_letters"] == {"malformed_json": 30}
    assert facts["position"] == {made.stream: {"0": 500, "1": 500}}
    assert facts["whole"]["records"] == 1000
    assert facts["whole"]["cpu_seconds"] > 1
    assert 0 < facts["commit_share"] < 1
    made.assert_exactly_once()

    (status,) = facts_of(made.home, "status")["streams"]
    assert {"state": "idle", "lag": 0, "rows": 950, "dead": 30, "unknown": {}}.items() <= status.items()
    assert status["last_commit"] is not None
    assert status["complete_through"] is not None
    assert f"table {made.table_name} holds what the stream declares" in frazil(made.home, "validate")
    assert "nothing new" in frazil(made.home, "run", made.stream)


def test_all_streams_in_one_command_of_which_one_fails(pipeline: Callable[..., Pipeline]) -> None:
    missing = pipeline(topic=False)
    last = Pipeline(missing.home, missing.address, f"{missing.stream}_b")
    last.create_topic()
    last.produce({GOOD: 95, TRUNCATED: 5})
    status, output, errors = Marked(missing.home, ["run", "--all", "--json"]).finish(300)
    assert status == 1, errors
    runs = {run["stream"]: run for run in json.loads(output)["runs"]}
    assert [(name, run["result"]) for name, run in runs.items()] == [
        (missing.stream, "failed"),
        (last.stream, "landed"),
    ]
    assert runs[last.stream]["facts"]["records"]["landed"] == 95
    assert f"Error: stream {missing.stream}: topic {missing.stream} does not exist." in errors
    assert "Traceback" not in errors
    last.assert_exactly_once()


def test_a_stop_within_a_batch_is_a_sentence_without_a_stack_trace(pipeline: Callable[..., Pipeline]) -> None:
    made = pipeline()
    made.write_spec(errors={"tolerance": "none"})
    made.produce({GOOD: 10, TRUNCATED: 1})
    status, output, errors = Marked(made.home, ["run", made.stream]).finish()
    assert (status, output) == (1, "")
    assert f"Error: stream {made.stream} tolerates no failed record, and 1 of 11 failed" in errors
    assert "Traceback" not in errors


def test_a_schema_that_fits_nothing_is_no_success(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    made = pipeline()
    schema = "id long not null, created_at timestamptz not null"
    made.write_spec(schema)
    made.produce({GOOD: 40})
    with pytest.raises(ToleranceError) as stopped:
        made.drain(spark)
    said = str(stopped.value)
    assert "40 of 40 records of a batch failed, and the stream has landed none before, more than" in said
    assert "wrong_type in decode_value, field $.id: needs long, found a string" in said
    assert sum(made.landed().values()) == sum(made.dead().values()) == 0

    made.write_spec(schema, errors={"stop_above": "off"})
    status, output, errors = Marked(made.home, ["run", made.stream]).finish()
    assert status == 1
    assert "nothing landed; committed in snapshot" in output
    assert "40 × wrong_type at $.id: needs long, found a string; such as topic" in output
    assert f"Error: stream {made.stream}: not one of 40 records landed; 40 are dead letters." in errors
    assert f"Next: frazil letters {made.stream}" in errors
    made.assert_exactly_once()


def test_keys_that_are_left_out_are_told_over_several_drains(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    made = pipeline()
    made.write_spec("id string not null, created_at timestamptz not null, note string", slo={"unknown_fields": ["$.x"]})
    for count in (30, 10):
        made.produce({GOOD: count})
        (batch,) = made.drain(spark).batches
        assert {path: met.records for path, met in batch.unknown_fields.items()} == {"$.amount": count}
    (status,) = facts_of(made.home, "status")["streams"]
    assert status["unknown_fields"]["records_landed"] == 40
    (field,) = status["unknown_fields"]["fields"]
    assert field | {"example": None} == {
        "path": "$.amount", "records": 40, "share": 1.0, "expected": False, "example": None, "within": "$",
        "column": "amount double",
    }  # fmt: skip
    where = field["example"]
    assert (where["topic"], where["partition"], where["offset"]) in made.landed()


def test_ctrl_c_during_a_run_leaves_no_process_and_loses_nothing(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    made = pipeline()
    made.produce({GOOD: 3000})
    command = Marked(made.home, ["run", made.stream])
    log = made.folder().root / "spark.log"
    wait_for(lambda: bool(command.living("SparkSubmit")) and log.exists(), "Spark's JVM")
    wait_for(lambda: "0" in _batches(made), "the first batch to be planned")
    command.interrupt()
    status, output, errors = command.finish(60)
    assert (status, output) == (130, "")
    assert errors.rstrip().endswith("Stopped.")
    assert "Traceback" not in errors
    assert command.living() == []
    made.drain(spark)
    made.assert_exactly_once()


def _batches(made: Pipeline) -> set[str]:
    return {path.name for path in made.folder().root.glob("checkpoints/*/offsets/*")}
