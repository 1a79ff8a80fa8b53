"""Keys, headers and Kafka's own columns, the whole way: each stands in the table, or its record is a dead letter."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.helpers.topics import idempotent_producer
from tests.integration.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

COUNT = 600


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
    assert producer.flush(120) == 0
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
