"""`frazil preview` on the real broker: what it says is what the stream then does, and nothing is written before."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner, Result

from orchestration.cli.main import main
from tests.helpers.topics import idempotent_producer
from tests.integration.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

COUNT = 300
SCHEMA = "id string not null, at timestamptz, amount string, card string, kind string"
STEPS: list[Any] = [
    {"cast": {"amount": "decimal(12,2)"}},
    {"mask": {"columns": "card", "replacement": "***"}},
    {"where": "kind <> 'ignored'"},
]


def value(number: int) -> bytes | None:
    if number % 50 == 3:
        return None
    if number % 50 == 15:
        return b"no json"
    kind = "ignored" if number % 50 == 14 else "sale"
    amount = "-566,000" if number % 50 == 11 else f"{number}.25"
    at = f"2026-03-{number % 3 + 1:02d}T08:00:00Z"
    return json.dumps({"id": f"p-{number}", "at": at, "amount": amount, "card": "4111-0000", "kind": kind}).encode()


def typed(one: Pipeline, *words: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(one.home), "preview", one.stream, *words])


def facts(one: Pipeline, *words: str, status: int = 0) -> Any:
    result = typed(one, *words, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def everything(home: Path) -> dict[Path, int]:
    return {each: each.stat().st_mtime_ns for each in home.rglob("*")}


def test_a_preview_says_what_the_stream_then_does(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    one = Pipeline(tmp_path, broker, "previewed")
    document: dict[str, Any] = {
        "decode": {"value": "json", "schema": SCHEMA},
        "transform": STEPS,
        "table": {"name": one.table_name, "partition_by": ["day(at)"]},
        "errors": {"stop_above": "off", "dead_letters": {"mask": {"columns": ["card"]}}},
    }
    one.write_spec(**document)
    one.create_topic()
    producer = idempotent_producer(broker, one.stream)
    for number in range(COUNT):
        producer.produce(one.stream, value=value(number), partition=number % 2)
    assert producer.flush(120) == 0
    one.settings()
    before = everything(one.home)

    # The table is not there yet.
    first = facts(one, "--last", str(COUNT))
    assert everything(one.home) == before, "nothing is written"
    each = COUNT // 50
    assert first["counts"] == {
        "read": COUNT, "landed": COUNT - 4 * each, "dead": 2 * each, "tombstones": each, "filtered": each,
        "not_read": 0,
    }  # fmt: skip
    own, dead = first["tables"]
    assert (own["state"], own["rows"], dead["rows"]) == ("new", COUNT - 4 * each, 2 * each)
    assert [part["partition"] for part in own["partitions"]] == [{"at_day": f"2026-03-0{day}"} for day in (1, 2, 3)]
    assert {(cause["reason"], cause["stage"], cause["records"]) for cause in first["letters"]} == {
        ("wrong_type", "transform[0].cast", each),
        ("malformed_json", "decode_value", each),
    }
    assert [row["after"][one.table_name]["card"] for row in first["rows"] if row["after"]] == ["(str)"] * 5
    text = typed(one, "--last", "50").stdout
    assert f"lands in {one.table_name}" in text and "4111" not in text + json.dumps(first)

    # What it says is what comes.
    drained = one.drain(spark)
    counts = drained.counts
    assert (counts.landed, counts.dead, counts.tombstones, counts.filtered) == (
        first["counts"]["landed"], 2 * each, each, each,
    )  # fmt: skip
    rows = one.table().scan().to_arrow().to_pylist()
    assert Counter(row["at"].day for row in rows) == {
        day: part["rows"] for day, part in enumerate(own["partitions"], 1)
    }
    assert len(rows) == own["rows"] and one.dead_table().scan().to_arrow().num_rows == dead["rows"]

    # The table is there now; some offsets, and no position moves.
    head = one.table().metadata.current_snapshot_id
    some = facts(one, "--offsets", f"{one.stream}:1:5-9", "--rows", "100")
    assert some["ranges"] == [{"topic": one.stream, "partition": 1, "start": 5, "end": 10}]
    assert (some["tables"][0]["state"], some["counts"]["read"]) == ("there", 5)
    assert [row["offset"] for row in some["rows"] if row["outcome"] == "landed"]

    # Another file: a cure, a filter more, and the same again.
    other = tmp_path / "other.yaml"

    def write(**changes: Any) -> str:
        other.write_text(yaml.safe_dump(yaml.safe_load(one.spec_file.read_text()) | changes, sort_keys=False))
        return str(other)

    last = ("--last", str(COUNT))
    same = facts(one, *last, "--diff", write(description="other words"))
    assert (same["verdict"], same["changed"], same["rows"]) == ("same", 0, [])
    cured = [{"compute": {"amount": "replace(amount, ',', '')"}}, *STEPS]
    changed = facts(one, *last, "--diff", write(transform=cured), status=3)
    assert (changed["verdict"], changed["changed"], changed["lost"]) == ("changed", each, 0)
    assert [(move["to"], move["records"]) for move in changed["moves"]] == [(f"landed in {one.table_name}", each)]
    lost = typed(one, *last, "--diff", write(transform=[*STEPS, {"where": "amount > 100"}]))
    assert lost.exit_code == 4 and "would land no more" in lost.stdout
    assert one.table().metadata.current_snapshot_id == head


def test_a_topic_without_records_and_one_that_is_not_there(broker: str, tmp_path: Path) -> None:
    one = Pipeline(tmp_path, broker, "previewedempty")
    result = typed(one)
    assert result.exit_code == 1 and "topic previewedempty does not exist" in result.stderr
    one.create_topic()
    assert facts(one)["counts"]["read"] == 0
    assert "0 records" in typed(one).stdout
