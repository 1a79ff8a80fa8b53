"""Avro records, the whole way: a subject makes the table, its next version a column, an unknown id a dead letter."""

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

from jobs.registry.client import RegistryClient, registry_client
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
    """Writes Avro records to a pipeline's topic."""

    def __init__(self, pipeline: Pipeline, registry: str) -> None:
        self.pipeline = pipeline
        self.client: RegistryClient = registry_client(RegistrySettings.model_validate({"url": registry}))
        self.sent = 0

    def register(self, schema: dict[str, Any]) -> int:
        return self.client.register(f"{self.pipeline.stream}-value", "AVRO", json.dumps(schema))

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
    made = Pipeline(tmp_path, broker, f"avro_{uuid.uuid4().hex[:8]}")
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
    file.write_text(yaml.safe_dump(settings | {"registry": {"url": url, "timeout": "3s"}}))


@pytest.fixture
def producer(pipeline: Pipeline, registry: str) -> Iterator[Producer]:
    made = Producer(pipeline, registry)
    yield made
    made.client.close()


def landed(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    rows = pipeline.table().scan().to_arrow().to_pylist()
    places = {(row["_kafka_topic"], row["_kafka_partition"], row["_kafka_offset"]) for row in rows}
    assert len(places) == len(rows)
    return {row["id"]: {name: value for name, value in row.items() if not name.startswith("_kafka")} for row in rows}


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
