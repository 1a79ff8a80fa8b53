"""Transforms and rules the whole way: through Kafka, Spark, the table, the dead letters and a replay."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
from jobs.spec.correction import load_correction
from tests.integration.pipeline import Pipeline
from tests.integration.topics import idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

COUNT = 400
STEPS: list[Any] = [
    {"flatten": {"columns": "p"}},
    {"rename": {"p_at": "at", "p_amount": "amount"}},
    {"parse_timestamp": {"column": "at", "format": "yyyy/MM/dd HH:mm:ss", "zone": "Asia/Tokyo"}},
    {"cast": {"amount": "decimal(12,2)"}},
    {"mask": {"columns": "p_card", "replacement": "***"}},
    {"filter": {"drop": {"header": "test"}}},
    {"set": {"origin": {"from": "header:origin"}, "topic": {"from": "topic"}}},
    {"compute": {"amount_twice": "amount * 2"}},
    {"where": "kind <> 'ignored'"},
]
RULES = [
    {"name": "positive", "expect": "amount > 0"},
    {"name": "small", "expect": "amount < 300", "severity": "warn"},
]


def value(number: int) -> bytes | None:
    if number % 50 == 3:
        return None
    amount = {11: "-566,000", 12: "-5.00"}.get(number % 50, f"{number}.25")
    at = "2024/02/31 09:00:00" if number % 50 == 13 else "2024/01/01 09:00:00"
    kind = "ignored" if number % 50 == 14 else "sale"
    record = {"id": f"p-{number}", "p": {"card": f"4111-{number}", "at": at, "amount": amount}, "kind": kind}
    return b"no json" if number % 50 == 15 else json.dumps(record).encode()


def test_records_are_shaped_refused_filtered_and_brought_home(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, broker, "transformed")
    schema = "id string not null, p struct<card string, at string, amount string>, kind string"
    pipeline.write_spec(
        decode={"value": "json", "schema": schema},
        transform=STEPS,
        rules=RULES,
        table={"name": pipeline.table_name, "partition_by": ["day(at)"]},
    )
    pipeline.create_topic()
    producer = idempotent_producer(broker, pipeline.stream)
    for number in range(COUNT):
        headers: list[tuple[str, str | bytes | None]] = [
            ("origin", b"web"),
            *([("test", b"1")] if number % 50 == 16 else []),
        ]
        producer.produce(pipeline.stream, value=value(number), partition=number % 2, headers=headers)
    assert producer.flush(30) == 0

    drained = pipeline.drain(spark)
    each = COUNT // 50
    counts = drained.counts
    assert (counts.read, counts.landed, counts.dead, counts.tombstones, counts.filtered) == (
        COUNT, COUNT - 7 * each, 4 * each, each, 2 * each,
    )  # fmt: skip
    pipeline.assert_contiguous()
    rows = {row["id"]: row for row in pipeline.table().scan().to_arrow().to_pylist()}
    assert len(rows) == counts.landed
    one = {name: found for name, found in rows["p-21"].items() if not name.startswith("_kafka")}
    assert one == {
        "id": "p-21", "p_card": "***", "at": datetime(2024, 1, 1, tzinfo=UTC), "amount": Decimal("21.25"),
        "kind": "sale", "origin": "web", "topic": pipeline.stream, "amount_twice": Decimal("42.50"),
    }  # fmt: skip
    dead = pipeline.dead_table().scan().to_arrow().to_pylist()
    assert Counter((row["stage"], row["error_class"]) for row in dead) == {
        ("transform[3].cast", "wrong_type"): each,
        ("rules[0].positive", "rule_violated"): each,
        ("transform[2].parse_timestamp", "bad_timestamp"): each,
        ("decode_value", "malformed_json"): each,
    }
    amounts = [json.loads(row["row_before"]) for row in dead if row["stage"] == "transform[3].cast"]
    assert {row["amount"] for row in amounts} == {"-566,000"}
    assert {row["at"][:10] for row in amounts} == {"2024-01-01"}
    assert {row["row_before"] for row in dead if row["stage"] == "decode_value"} == {None}

    # A correction takes the commas out, and lets what is negative land.
    corrected = [*STEPS[:3], {"compute": {"amount": "replace(amount, ',', '')"}}, *STEPS[3:]]
    patch = tmp_path / "correction.yaml"
    patch.write_text(yaml.safe_dump({"transform": corrected, "rules": []}, sort_keys=False))
    request = ReplayRequest(correction=load_correction(pipeline.spec_file, patch))
    result = replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), request)
    assert (result.selected, result.replayed, result.failed_again) == (4 * each, 2 * each, 2 * each)
    amounts = Counter(row["amount"] for row in pipeline.table().scan().to_arrow().to_pylist())
    assert (amounts[Decimal("-566000.00")], amounts[Decimal("-5.00")]) == (each, each)
    assert [found for found in pipeline.landed().values() if found != 1] == []
