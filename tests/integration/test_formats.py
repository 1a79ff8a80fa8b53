"""Formats other than JSON, the whole way: what a producer wrote stands in the table, or is a dead letter."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.pipeline import Pipeline
from tests.integration.topics import idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

COUNT = 600


@pytest.mark.parametrize(
    ("value", "column", "good", "bad", "error_class"),
    [
        ("string", "string", lambda n: f"Größe {n} 🙂".encode(), b"\xff", "invalid_utf8"),
        ("long", "long", lambda n: struct.pack(">q", n - 300), b"17", "wrong_length"),
    ],
)
def test_values_of_one_column(
    value: str, column: str, good: Any, bad: bytes, error_class: str, broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path, broker, f"primitive_{value}")
    pipeline.write_spec(decode={"value": value, "schema": f"reading {column}"}, table={"name": pipeline.table_name})
    pipeline.create_topic()
    producer = idempotent_producer(broker, pipeline.stream)
    sent = {n: None if n % 100 == 7 else bad if n % 100 == 9 else good(n) for n in range(COUNT)}
    for number, bytes_ in sent.items():
        producer.produce(pipeline.stream, value=bytes_, partition=number % 2)
    assert producer.flush(30) == 0
    counts = pipeline.drain(spark).counts
    rows = pipeline.table().scan().to_arrow().to_pylist()
    read = {2 * row["_kafka_offset"] + row["_kafka_partition"]: row["reading"] for row in rows}
    expected = {
        number: bytes_.decode() if value == "string" else struct.unpack(">q", bytes_)[0]
        for number, bytes_ in sent.items()
        if bytes_ not in (None, bad)
    }
    assert (len(rows), read) == (len(expected), expected)
    dead = pipeline.dead_table().scan().to_arrow().to_pylist()
    assert {2 * row["offset"] + row["partition"]: (row["error_class"], row["value"]) for row in dead} == {
        number: (error_class, bad) for number, bytes_ in sent.items() if bytes_ == bad
    }
    assert (counts.read, counts.landed, counts.dead, counts.tombstones) == (COUNT, len(expected), 6, 6)


def test_keys_headers_and_kafka_s_own_columns(broker: str, spark: SparkSession, tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, broker, "record_columns")
    pipeline.write_spec(
        decode={
            "value": "string",
            "schema": "reading string",
            "key": {"format": "long", "into": "id"},
            "headers": {"attempts": {"header": "x-attempts", "type": "int"}},
        },
        table={"name": pipeline.table_name, "kafka_columns": {"offset": "at", "headers": True}},
    )
    pipeline.create_topic()
    producer = idempotent_producer(broker, pipeline.stream)
    for number in range(COUNT):
        producer.produce(
            pipeline.stream,
            value=b"v",
            key=b"short" if number % 100 == 3 else struct.pack(">q", number),
            headers=[("x-attempts", b"many" if number % 100 == 5 else b"%d" % number)],
            partition=0,
        )
    assert producer.flush(30) == 0
    counts = pipeline.drain(spark).counts
    rows = {row["at"]: row for row in pipeline.table().scan().to_arrow().to_pylist()}
    assert {at: (row["id"], row["attempts"]) for at, row in rows.items()} == {
        number: (number, number) for number in range(COUNT) if number % 100 not in (3, 5)
    }
    assert rows[0]["_kafka_headers"] == [{"key": "x-attempts", "value": b"0"}]
    dead = pipeline.dead_table().scan().to_arrow().to_pylist()
    assert {row["offset"]: (row["stage"], row["error_class"], row["field"]) for row in dead} == {
        number: ("decode_key", "wrong_length", "$.id")
        if number % 100 == 3
        else ("decode_header", "wrong_type", "$.attempts")
        for number in range(COUNT)
        if number % 100 in (3, 5)
    }
    assert (counts.read, counts.landed, counts.dead) == (COUNT, COUNT - 12, 12)
