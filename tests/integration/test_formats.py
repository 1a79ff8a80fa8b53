"""Keys, headers and Kafka's own columns, the whole way: each stands in the table, or its record is a dead letter."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyiceberg.types import StringType

from jobs.registry.client import registry_client
from jobs.registry.known_schemas import read_known_schemas
from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
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


def landed_rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The table's rows in the order of their records, each there once."""
    rows = pipeline.table().scan().to_arrow().to_pylist()
    where = [(row["_kafka_offset"], row["_kafka_partition"]) for row in rows]
    assert len(set(where)) == len(rows)
    return [row for _, row in sorted(zip(where, rows, strict=True), key=lambda one: one[0])]


KEY_SCHEMA = '{"type":"record","name":"Key","fields":[{"name":"n","type":"long"},{"name":"shop","type":"string"}]}'


def test_keys_of_a_registry_beside_values_of_none(
    broker: str, registry: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Keys name their schema before their bytes or in a header; values are JSON. The newest one makes their struct."""
    pipeline = Pipeline(tmp_path, broker, "registry_keys")
    pipeline.create_topic()
    file = pipeline.home / "frazil.yaml"
    settings = {**yaml.safe_load(file.read_text()), "registry": {"url": registry, "timeout": "3s", "lag": "300ms"}}
    file.write_text(yaml.safe_dump(settings))
    key = {"format": "avro", "schema": "registry", "into": "key", "unknown_fields": "fail"}
    pipeline.write_spec(
        decode={"value": "json", "schema": "id string", "key": key}, table={"name": pipeline.table_name}
    )

    def register(text: str) -> int:
        client = registry_client(pipeline.settings().registry)
        try:
            return client.register(f"{pipeline.stream}-key", "AVRO", text)
        finally:
            client.close()

    number = register(KEY_SCHEMA)
    prefix = b"\x00" + struct.pack(">I", number)
    producer = idempotent_producer(broker, pipeline.stream)
    for n in range(COUNT):
        # n as Avro's number, and a text of one letter.
        bare = _zigzag(n) + b"\x02s"
        headers: list[tuple[str, str | bytes | None]] = [("__key_schema_id", prefix)] if n % 2 else []
        sent = None if n == 8 else b"bare" if n == 10 else bare if n % 2 else prefix + bare
        producer.produce(pipeline.stream, value=b'{"id":"a"}', key=sent, headers=headers, partition=0)
    assert producer.flush(120) == 0
    counts = pipeline.drain(spark).counts
    assert (counts.read, counts.landed, counts.dead) == (COUNT, COUNT - 1, 1)
    keys = {row["_kafka_offset"]: row["key"] for row in landed_rows(pipeline)}
    assert keys == {n: None if n == 8 else {"n": n, "shop": "s"} for n in range(COUNT) if n != 10}
    (letter,) = pipeline.dead_table().scan().to_arrow().to_pylist()
    assert (letter["offset"], letter["stage"], letter["error_class"]) == (10, "decode_key", "no_schema_id")
    # The driver has learned the schema, and what comes back is read as it was. Of the same registry this process may
    # know schemas of other streams, which it keeps as well.
    assert number in [each.number for each in read_known_schemas(pipeline.folder().store)]
    assert replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), ReplayRequest()).failed == 1

    # The registry has another version by now. The table says what a key's columns are, until somebody alters it.
    newer = register(KEY_SCHEMA.replace("]}", ',{"name":"more","type":"string","default":""}]}'))
    behind = _zigzag(7) + b"\x02s" + b"\x02m"
    producer.produce(pipeline.stream, value=b'{"id":"b"}', key=b"\x00" + struct.pack(">I", newer) + behind, partition=0)
    assert producer.flush(120) == 0
    assert pipeline.drain(spark).counts.dead == 1
    (letter,) = [each for each in pipeline.dead_table().scan().to_arrow().to_pylist() if each["offset"] == COUNT]
    assert (letter["error_class"], letter["field"]) == ("unknown_field", "$.key.more")
    with pipeline.table().update_schema() as change:
        change.add_column(("key", "more"), StringType())
    again = replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), ReplayRequest())
    assert (again.replayed, again.failed_again) == (1, 1)
    (row,) = [each for each in landed_rows(pipeline) if each["_kafka_offset"] == COUNT]
    assert (row["id"], row["key"]) == ("b", {"n": 7, "shop": "s", "more": "m"})


def _zigzag(number: int) -> bytes:
    rest, written = number << 1, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])
