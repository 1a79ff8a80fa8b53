"""Records that name their schemas, the whole way: Avro, JSON Schema.

The first schema makes the table, the next one a column, an unknown id a dead letter that comes back.
"""

from __future__ import annotations

import io
import json
import struct
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
import yaml

from jobs.errors import FrazilError
from jobs.registry.client import Reference, RegistryClient, registry_client
from jobs.registry.known_schemas import read_known_schemas
from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
from jobs.spec.registry import RegistrySettings
from tests.integration.pipeline import Pipeline
from tests.integration.topics import idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def with_field(field: dict[str, Any]) -> dict[str, Any]:
    return FIRST | {"fields": [*FIRST["fields"], field]}


class Producer:
    """Writes records to a pipeline's topic."""

    def __init__(self, pipeline: Pipeline, registry: str) -> None:
        self.pipeline = pipeline
        self.client: RegistryClient = registry_client(RegistrySettings.model_validate({"url": registry}))
        self.sent = 0

    def register(self, schema: dict[str, Any], kind: str = "AVRO", references: Sequence[Reference] = ()) -> int:
        subject = f"{self.pipeline.stream}-value"
        return self.client.register(subject, kind, json.dumps(schema), references)

    def send(self, values: Sequence[bytes | None]) -> None:
        producer = idempotent_producer(self.pipeline.address, self.pipeline.stream)
        for value in values:
            producer.produce(self.pipeline.stream, value=value, partition=self.sent % self.pipeline.partitions)
            self.sent += 1
        assert producer.flush(30) == 0

    def encoded(self, schema: dict[str, Any], number: int, **fields: Any) -> bytes:
        return b"\x00" + struct.pack(">I", number) + datum(schema, **fields)


def datum(schema: dict[str, Any], **fields: Any) -> bytes:
    made = io.BytesIO()
    fastavro.schemaless_writer(made, fastavro.parse_schema(schema), fields)
    return made.getvalue()


def payment(number: int) -> dict[str, Any]:
    at = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=number)
    return {"id": f"p{number}", "amount": Decimal(number) / 100, "at": at, "note": None if number % 2 else f"n{number}"}


@pytest.fixture
def pipeline(broker: str, registry: str, tmp_path: Path) -> Pipeline:
    made = Pipeline(tmp_path, broker, f"written_{uuid.uuid4().hex[:8]}")
    use_registry(made, registry)
    made.write_spec(
        decode={"value": "avro", "schema": "registry"},
        table={"name": made.table_name, "partition_by": ["day(at)"]},
    )
    made.create_topic()
    return made


def use_registry(pipeline: Pipeline, url: str) -> None:
    file = pipeline.home / "frazil.yaml"
    settings = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(settings | {"registry": {"url": url, "timeout": "3s", "lag": "300ms"}}))


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


def dead(pipeline: Pipeline) -> list[tuple[str, str, str | None]]:
    rows = pipeline.dead_table().scan().to_arrow().to_pylist()
    return sorted((row["error_class"], row["message"], row["field"]) for row in rows)


def test_a_subject_makes_the_table_and_records_of_it_land(
    pipeline: Pipeline, producer: Producer, spark: SparkSession
) -> None:
    first = producer.register(FIRST)
    sent = {number: payment(number) for number in range(300)}
    values: list[bytes | None] = [producer.encoded(FIRST, first, **fields) for fields in sent.values()]
    producer.send([*values, None, b"", b'{"id": 1}', b"\x00" + struct.pack(">I", first) + b"\x02"])
    counts = pipeline.drain(spark).counts
    assert (counts.read, counts.landed, counts.dead, counts.tombstones) == (304, 300, 3, 1)
    schema = pipeline.table().schema()
    assert {field.name: (str(field.field_type), field.required) for field in schema.fields[:4]} == {
        "id": ("string", True),
        "amount": ("decimal(12, 2)", True),
        "at": ("timestamptz", True),
        "note": ("string", False),
    }
    assert landed(pipeline) == {fields["id"]: fields for fields in sent.values()}
    assert {error_class for error_class, _, _ in dead(pipeline)} >= {"no_schema_id"}
    assert set(read_known_schemas(pipeline.folder().store)) != set()


def test_an_unknown_id_is_a_dead_letter_that_names_id_and_subject_and_comes_back(
    pipeline: Pipeline, producer: Producer, spark: SparkSession
) -> None:
    first = producer.register(FIRST)
    unknown = 999_999
    producer.send([producer.encoded(FIRST, first, **payment(1)), producer.encoded(FIRST, unknown, **payment(2))])
    assert pipeline.drain(spark).counts.dead == 1
    ((error_class, message, _),) = dead(pipeline)
    assert error_class == "unknown_schema"
    assert f"id {unknown}" in message
    assert f"{pipeline.stream}-value" in message
    # It stays one as long as nobody knows the id.
    result = replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), ReplayRequest())
    assert (result.replayed, result.failed) == (0, 1)


def test_the_next_version_of_a_schema_gives_the_table_a_column(
    pipeline: Pipeline, producer: Producer, spark: SparkSession
) -> None:
    first = producer.register(FIRST)
    producer.send([producer.encoded(FIRST, first, **payment(1))])
    assert pipeline.drain(spark).counts.landed == 1
    wider = with_field({"name": "fee", "type": ["null", "long"], "default": None})
    second = producer.register(wider)
    values = [producer.encoded(FIRST, first, **payment(2)), producer.encoded(wider, second, **payment(3), fee=7)]
    producer.send(values)
    assert pipeline.drain(spark).counts.landed == 2
    assert {name: row["fee"] for name, row in landed(pipeline).items()} == {"p1": None, "p2": None, "p3": 7}
    assert [name for name in pipeline.table().schema().column_names if not name.startswith("_kafka")][-1] == "fee"
    assert dead(pipeline) == []


def test_schemas_that_make_no_table_are_told_and_their_records_are_dead_letters(
    pipeline: Pipeline, producer: Producer, spark: SparkSession
) -> None:
    table = {"name": pipeline.table_name}
    own = with_field({"name": "_kafka_offset", "type": "long"})
    ids: list[int] = []
    for name, schema, problem in (
        ("own", own, "the field _kafka_offset would be a column, and names that start with _kafka are kept"),
        ("empty", FIRST | {"fields": []}, "makes no table: records without a field"),
    ):
        subject = f"{pipeline.stream}-{name}"
        ids.append(producer.client.register(subject, "AVRO", json.dumps(schema)))
        pipeline.write_spec(decode={"value": "avro", "schema": "registry", "subject": subject}, table=table)
        with pytest.raises(FrazilError, match=problem):
            pipeline.drain(spark)
    pipeline.write_spec(decode={"value": "avro", "schema": "registry"}, table=table)
    first = producer.register(FIRST)
    named = producer.encoded(own, ids[0], **payment(2), _kafka_offset=7)
    producer.send([producer.encoded(FIRST, first, **payment(1)), named, bytes(1) + struct.pack(">I", ids[1])])
    counts = pipeline.drain(spark).counts
    assert (counts.landed, [error_class for error_class, _, _ in dead(pipeline)]) == (2, ["bad_schema"])
    # The column is Kafka's, whatever a record says.
    assert [row["_kafka_offset"] for row in landed_rows(pipeline)] == [0, 0]


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
    decode = {"value": "json_schema", "schema": "registry"}
    pipeline.write_spec(decode=decode, table={"name": pipeline.table_name})
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
    pipeline.write_spec(decode=decode, table={"name": pipeline.table_name}, evolve={"widen": "ignore"})
    producer.send([wrapped(second, purchase(900, n=2**40, fee=0.5))])
    assert pipeline.drain(spark).counts.dead == 1
    pipeline.write_spec(decode=decode, table={"name": pipeline.table_name})
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
