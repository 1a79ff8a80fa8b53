"""Formats other than JSON, the whole way: what a producer wrote stands in the table, or is a dead letter."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from pyiceberg.types import StringType

from jobs.registry.client import registry_client
from jobs.registry.known_schemas import read_known_schemas
from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
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


def send(pipeline: Pipeline, values: Sequence[bytes | None]) -> None:
    """Produce values, in turn over the partitions."""
    producer = idempotent_producer(pipeline.address, pipeline.stream)
    for number, value in enumerate(values):
        producer.produce(pipeline.stream, value=value, partition=number % pipeline.partitions)
    assert producer.flush(30) == 0


def landed_rows(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The table's rows in the order of their records, each there once."""
    rows = pipeline.table().scan().to_arrow().to_pylist()
    where = [(row["_kafka_offset"], row["_kafka_partition"]) for row in rows]
    assert len(set(where)) == len(rows)
    return [row for _, row in sorted(zip(where, rows, strict=True), key=lambda one: one[0])]


def letters(pipeline: Pipeline) -> dict[tuple[int, int], tuple[str, str | None, bytes]]:
    """Class, field and value of each dead letter, by partition and offset."""
    rows = pipeline.dead_table().scan().to_arrow().to_pylist()
    return {(row["partition"], row["offset"]): (row["error_class"], row["field"], row["value"]) for row in rows}


def enveloped(fields: dict[str, str | dict[str, Any]], payload: dict[str, Any]) -> bytes:
    """What JsonConverter writes: all fields optional but the id, by the names of their types."""
    schemas = [
        {"field": name, "optional": name != "id", **({"type": kind} if isinstance(kind, str) else kind)}
        for name, kind in fields.items()
    ]
    schema = {"type": "struct", "optional": False, "name": "shop.Payment", "fields": schemas}
    return json.dumps({"schema": schema, "payload": payload}).encode()


def test_connect_json_lands_evolves_and_its_dead_letters_come_back(
    broker: str, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline = Pipeline(tmp_path, broker, "connect_json")
    pipeline.create_topic()
    table = {"name": pipeline.table_name, "partition_by": ["day(at)"]}
    columns = "id string not null, n int, at timestamptz, amount decimal(12,2)"
    pipeline.write_spec(decode={"value": "connect_json", "schema": columns}, table=table)
    amount = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    at = {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}
    fields: dict[str, str | dict[str, Any]] = {"id": "string", "n": "int64", "at": at, "amount": amount}
    good = {number: {"id": f"p{number}", "n": number, "at": number, "amount": "AMg="} for number in range(400)}
    bad = [
        enveloped(fields, good[1] | {"n": 2**40}),
        enveloped(fields, good[1] | {"n": "7"}),
        b'{"id":"p1"}',
        enveloped({**fields, "n": "int65"}, good[1]),
        enveloped(fields, good[1])[:-1],
    ]
    send(pipeline, [*(enveloped(fields, payload) for payload in good.values()), None, *bad])
    counts = pipeline.drain(spark).counts
    assert (counts.read, counts.landed, counts.dead, counts.tombstones) == (406, 400, 5, 1)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    rows = landed_rows(pipeline)
    assert [(row["id"], row["n"], row["at"], row["amount"]) for row in rows] == [
        (f"p{n}", n, epoch + timedelta(milliseconds=n), Decimal(2)) for n in good
    ]
    assert letters(pipeline) == {
        (1, 200): ("out_of_range", "$.n", bad[0]),
        (0, 201): ("wrong_type", "$.n", bad[1]),
        (1, 201): ("bad_envelope", None, bad[2]),
        (0, 202): ("bad_schema", None, bad[3]),
        (1, 202): ("malformed_json", None, bad[4]),
    }

    # From here on the table follows the schemas of its records.
    evolve = {"add": "auto", "widen": "auto", "relax": "auto"}
    pipeline.write_spec(decode={"value": "connect_json", "schema": "table"}, table=table, evolve=evolve)
    more: dict[str, str | dict[str, Any]] = {
        **fields,
        "fee": "int32",
        "tags": {"type": "array", "items": {"type": "string"}},
    }
    send(pipeline, [enveloped(more, {**good[1], "id": "q1", "n": 2**41, "fee": 7, "tags": ["a"]})])
    assert pipeline.drain(spark).counts.landed == 1
    types = {field.name: str(field.field_type) for field in pipeline.table().schema().fields}
    assert (types["n"], types["fee"], types["tags"]) == ("long", "int", "list<string>")
    assert replay(pipeline.spec(), pipeline.settings(), pipeline.catalog(), ReplayRequest()).replayed == 1
    rows = landed_rows(pipeline)
    assert [row["n"] for row in rows if row["id"] == "p1"] == [1, 2**40]
    assert [(row["n"], row["fee"], row["tags"]) for row in rows if row["id"] == "q1"] == [(2**41, 7, ["a"])]
    pipeline.assert_contiguous()


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
    assert producer.flush(30) == 0
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
    assert producer.flush(30) == 0
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
