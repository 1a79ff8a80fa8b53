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
