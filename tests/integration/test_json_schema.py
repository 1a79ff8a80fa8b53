"""Records whose JSON Schema is in a registry, the whole way."""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.registry.client import Reference
from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
from tests.integration.pipeline import Pipeline
from tests.integration.registry_producer import Producer, use_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

DECODE = {"value": "json_schema", "schema": "registry"}


@pytest.fixture
def pipeline(broker: str, registry: str, tmp_path: Path) -> Pipeline:
    made = Pipeline(tmp_path, broker, f"json_schema_{uuid.uuid4().hex[:8]}")
    use_registry(made, registry)
    made.write_spec(decode=DECODE, table={"name": made.table_name})
    made.create_topic()
    return made


@pytest.fixture
def producer(pipeline: Pipeline, registry: str) -> Iterator[Producer]:
    made = Producer(pipeline, registry)
    yield made
    made.client.close()


def landed(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    rows = landed_rows(pipeline)
    return {row["id"]: {name: value for name, value in row.items() if not name.startswith("_kafka")} for row in rows}


def landed_rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The table's rows in the order of their records, each there once."""
    rows = pipeline.table().scan().to_arrow().to_pylist()
    where = [(row["_kafka_offset"], row["_kafka_partition"]) for row in rows]
    assert len(set(where)) == len(rows)
    return [row for _, row in sorted(zip(where, rows, strict=True), key=lambda one: one[0])]


def places(pipeline: Pipeline) -> dict[tuple[int, int], tuple[str, str | None, bytes]]:
    """Class, field and value of each dead letter, by partition and offset."""
    rows = pipeline.dead_table().scan().to_arrow().to_pylist()
    return {(row["partition"], row["offset"]): (row["error_class"], row["field"], row["value"]) for row in rows}


def wrapped(number: int, value: dict[str, Any]) -> bytes:
    return b"\x00" + struct.pack(">I", number) + json.dumps(value).encode()


STRING, LONG = {"type": "string"}, {"type": "integer"}
DECIMAL = {
    "type": "number",
    "title": "org.apache.kafka.connect.data.Decimal",
    "connect.type": "bytes",
    "connect.parameters": {"scale": "2"},
}
PURCHASE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": STRING,
        "amount": DECIMAL,
        "n": {"type": "integer", "connect.type": "int32"},
        "payer": {"$ref": "payer.json"},
    },
    "required": ["id", "amount"],
    # As Confluent's serializers write it; a registry lets no later version of an open one have a property more.
    "additionalProperties": False,
}


def purchase(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"p{number}", "amount": number / 4, "n": number, "payer": {"name": f"n{number}"}, **more}


def test_json_schema_lands_evolves_and_its_dead_letters_come_back(
    pipeline: Pipeline, producer: Producer, spark: SparkSession
) -> None:
    payer = f"{pipeline.stream}-payer"
    person = {"type": "object", "properties": {"name": STRING}, "required": ["name"]}
    producer.client.register(payer, "JSON", json.dumps(person))
    references = [Reference("payer.json", payer, 1)]
    first = producer.register(PURCHASE, "JSON", references)
    good: list[bytes | None] = [wrapped(first, purchase(number)) for number in range(400)]
    bad = [wrapped(first, purchase(1, payer={"name": 7})), wrapped(first, {"id": "x"}), b"{}", wrapped(first, {})[:5]]
    producer.send([*good, None, *bad])
    counts = pipeline.drain(spark).counts
    assert (counts.read, counts.landed, counts.dead, counts.tombstones) == (405, 400, 4, 1)
    rows = landed(pipeline)
    assert rows == {f"p{n}": purchase(n, amount=Decimal(n) / 4) for n in range(400)}
    assert places(pipeline) == {
        (1, 200): ("wrong_type", "$.payer.name", bad[0]),
        (0, 201): ("missing_field", "$.amount", bad[1]),
        (1, 201): ("no_schema_id", None, bad[2]),
        (0, 202): ("empty_value", None, bad[3]),
    }

    # The next version has a field more and a wider one, which the stream is not to follow at first.
    wider = {**PURCHASE, "properties": {**PURCHASE["properties"], "n": LONG, "fee": DECIMAL}}
    second = producer.register(wider, "JSON", references)
    pipeline.write_spec(decode=DECODE, table={"name": pipeline.table_name}, evolve={"widen": "ignore"})
    producer.send([wrapped(second, purchase(900, n=2**40, fee=0.5))])
    assert pipeline.drain(spark).counts.dead == 1
    pipeline.write_spec(decode=DECODE, table={"name": pipeline.table_name})
    producer.send([wrapped(second, purchase(901, n=2**41, fee=0.25)), wrapped(first, purchase(902))])
    assert pipeline.drain(spark).counts.landed == 2
    types = {field.name: str(field.field_type) for field in pipeline.table().schema().fields}
    assert (types["n"], types["fee"]) == ("long", "decimal(38, 2)")
    result = replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), ReplayRequest())
    assert (result.replayed, result.failed) == (1, 4)
    rows = landed(pipeline)
    assert [(rows[name]["n"], rows[name]["fee"]) for name in ("p900", "p901", "p902")] == [
        (2**40, Decimal("0.50")),
        (2**41, Decimal("0.25")),
        (902, None),
    ]
    pipeline.assert_contiguous()
