"""Events of Debezium in Avro, unwrapped: real registry, broker and Spark, killed as the table changes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.schema.decoded_columns import decoded_columns
from tests.integration.faults import die
from tests.integration.pipeline import Pipeline
from tests.integration.registry_producer import Producer, use_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

OPTIONAL_STRING = ["null", "string"]
FIRST_ROW = [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}, {"name": "secret", "type": "string"}]
SECOND_ROW = [
    {"name": "id", "type": "string"},
    {"name": "n", "type": "long"},
    {"name": "secret", "type": "string"},
    {"name": "colour", "type": OPTIONAL_STRING, "default": None},
]


def envelope(row: list[Any]) -> dict[str, Any]:
    value = {"type": "record", "name": "Value", "fields": row}
    source = {
        "type": "record",
        "name": "Source",
        "fields": [{"name": "db", "type": "string"}, {"name": "ts_ms", "type": "long"}],
    }
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.orders",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }


FIRST, SECOND = envelope(FIRST_ROW), envelope(SECOND_ROW)


def event(op: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> dict[str, Any]:
    return {"op": op, "before": before, "after": after, "source": {"db": "shop", "ts_ms": 5}, "ts_ms": 6}


STEPS: list[dict[str, Any]] = [
    {
        "smt": {
            "type": "io.debezium.transforms.ExtractNewRecordState",
            "delete.tombstone.handling.mode": "rewrite",
            "add.fields": "op,source.ts_ms",
        }
    },
    {"rename": {"n": "number"}},
    {"drop": "secret"},
    {"compute": {"twice": "number * 2"}},
]


@pytest.fixture
def one(broker: str, registry: str, tmp_path: Path) -> Pipeline:
    made = Pipeline(tmp_path, broker, f"unwrapped_{uuid.uuid4().hex[:8]}")
    use_registry(made, registry)
    decode = {"value": "avro", "schema": "registry"}
    made.write_spec(decode=decode, transform=STEPS, table={"name": made.table_name})
    made.create_topic()
    return made


@pytest.fixture
def producer(one: Pipeline, registry: str) -> Iterator[Producer]:
    made = Producer(one, registry)
    yield made
    made.client.close()


def columns(one: Pipeline) -> dict[str, str]:
    return {each.name: str(each.field_type) for each in one.table().schema().fields if each.name[:6] != "_kafka"}


def rows(one: Pipeline) -> list[dict[str, Any]]:
    found = one.table().scan().to_arrow().to_pylist()
    assert len({(each["_kafka_partition"], each["_kafka_offset"]) for each in found}) == len(found)
    kept = [{k: v for k, v in each.items() if k[:6] != "_kafka" and v is not None} for each in found]
    return sorted(kept, key=lambda each: (each["id"], each["__op"]))


def test_an_unwrapped_table_follows_its_source_through_kills(
    one: Pipeline, producer: Producer, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = producer.register(FIRST)
    producer.send(
        [
            producer.encoded(FIRST, first, **event("c", None, {"id": f"a{n}", "n": n, "secret": "x"}))
            for n in range(10, 40)
        ]
    )
    counts = one.drain(spark).counts
    assert (counts.landed, counts.dead) == (30, 0)
    made = {"id": "string", "number": "int", "__deleted": "string", "__op": "string", "__source_ts_ms": "long"}
    assert columns(one) == made | {"twice": "int"}
    second = producer.client.register(f"{one.stream}-next", "AVRO", json.dumps(SECOND))
    wide = 2**40
    red = {"id": "b", "n": wide, "secret": "x", "colour": "red"}
    producer.send(
        [
            producer.encoded(SECOND, second, **event("c", None, red)),
            producer.encoded(SECOND, second, **event("u", red, red | {"n": wide + 1, "colour": None})),
            producer.encoded(FIRST, first, **event("d", {"id": "a10", "n": 10, "secret": "x"}, None)),
            producer.encoded(SECOND, second, **event("d", red | {"id": "a11"}, None)),
        ]
    )
    die(one, spark, monkeypatch, "before_schema_commit")
    assert columns(one)["number"] == "int"
    die(one, spark, monkeypatch, "after_schema_commit")
    assert columns(one) == made | {"number": "long", "twice": "long", "colour": "string"}
    assert len(rows(one)) == 30, "nothing of the batch is committed"
    one.drain(spark)
    source = {"__source_ts_ms": 5}
    by_id = {(each["id"], each["__op"]): each for each in rows(one)}
    assert len(by_id) == 34
    assert by_id["b", "c"] == source | {
        "id": "b", "number": wide, "twice": 2 * wide, "__deleted": "false", "__op": "c", "colour": "red",
    }  # fmt: skip
    assert by_id["b", "u"] == source | {
        "id": "b", "number": wide + 1, "twice": 2 * wide + 2, "__deleted": "false", "__op": "u",
    }  # fmt: skip
    assert by_id["a10", "d"] == source | {
        "id": "a10", "number": 10, "twice": 20, "__deleted": "true", "__op": "d",
    }  # fmt: skip
    assert by_id["a11", "d"]["colour"] == "red" and by_id["a11", "d"]["__deleted"] == "true"
    assert one.dead_table().scan().to_arrow().num_rows == 0
    kept = decoded_columns(one.table().properties, one.stream)
    assert kept is not None
    for side in ("before", "after"):
        assert str(kept.rows.find_field(f"{side}.n").field_type) == "long"
        assert kept.rows.find_field(f"{side}.colour")
