"""Streams of changes end to end: captured events of a database, and upserts with tombstones; real broker and Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import LongType

from jobs.replay.request import ReplayRequest
from jobs.replay.run import replay
from jobs.schema.iceberg_schema import schema_text
from jobs.verify.audit import audit
from jobs.verify.ledger_fill import fill_ledger
from tests.debezium.samples import Sample, samples
from tests.integration.pipeline import Pipeline
from tests.integration.topics import create_topic, idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def produce(one: Pipeline, topic: str, records: list[tuple[bytes | None, bytes | None, Any]]) -> None:
    producer = idempotent_producer(one.address, topic)
    for key, value, headers in records:
        producer.produce(topic, key=key, value=value, headers=headers, partition=0)
    assert producer.flush(30) == 0


def audited(one: Pipeline) -> None:
    catalog, settings = one.catalog(), one.settings()
    fill_ledger(catalog, settings, [one.spec()])
    found = audit(one.spec(), settings, catalog, full=True)
    assert not found.problems and not found.pending, found.problems


def rows(one: Pipeline, table: str) -> list[dict[str, Any]]:
    found = one.catalog().load_table(table).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda each: (each["_kafka_partition"], each["_kafka_offset"]))


def test_a_whole_database_has_a_changelog_for_each_table(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline(partitions=1, topic=False)
    wanted = [each for each in samples("postgresql") if each.topic.endswith(("orders", "large"))]
    by_topic: dict[str, list[Sample]] = {}
    for each in wanted:
        by_topic.setdefault(f"{one.stream}.{each.topic.rpartition('.')[2]}", []).append(each)
    heartbeats = [each for each in samples("postgresql") if each.topic.startswith("__debezium-heartbeat")]
    by_topic[f"{one.stream}.orders"] += heartbeats
    for topic, found in by_topic.items():
        create_topic(one.address, topic, 1)
        produce(one, topic, [(each.key, each.value, list(each.headers)) for each in found])
    one.write_spec(
        source={"topics_pattern": rf"{one.stream}\..*"},
        decode={
            "value": "connect_json",
            "schema": "infer",
            "key": {"format": "connect_json", "schema": "infer", "into": "_change_key"},
        },
        changes="debezium",
        table={"name": one.table_name},
        route={"by": "regexp_replace(_topic, '^.*[.]', '')", "to": f"tests.{one.stream}_{{value}}"},
        maintenance={"enabled": False},
    )
    counts = one.drain(spark).counts
    tombstones = sum(each.value is None for each in wanted)
    assert (counts.dead, counts.tombstones, counts.filtered) == (0, tombstones, len(heartbeats))
    assert counts.landed == len(wanted) - tombstones
    orders = rows(one, f"tests.{one.stream}_orders")
    # What came with later schemas is a column of all.
    assert {"region", "id", "amount", "notes", "paid"} <= {*orders[0]}
    assert [each["_change_old_key"] for each in orders if each["_change_old_key"]] == [{"region": "eu", "id": 2}]
    table = one.catalog().load_table(f"tests.{one.stream}_orders").schema()
    assert schema_text(table.find_type("_change_key")) == "struct<region string not null, id long not null>"
    (unavailable,) = [each["_change_unavailable"] for each in rows(one, f"tests.{one.stream}_large")][1:]
    assert "notes" in unavailable
    audited(one)


def test_upserts_land_their_tombstones_once_and_letters_come_home(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline(partitions=1, topic=False)
    one.create_topic()
    key = {"format": "json", "schema": "id int", "into": "_change_key"}
    one.write_spec(
        decode={"value": "json", "schema": "id int, name string", "key": key},
        changes="upsert",
        table={"name": one.table_name},
    )

    def keyed(number: int, value: Any) -> tuple[bytes | None, bytes | None, Any]:
        return json.dumps({"id": number}).encode(), None if value is None else json.dumps(value).encode(), []

    records = [keyed(n, {"id": n, "name": f"n{n}"}) for n in range(5)] + [keyed(n, None) for n in range(3)]
    # A key that is wider than declared, of a record without a value.
    records.append((b'{"id": 99999999999}', None, []))
    produce(one, one.stream, records)
    counts = one.drain(spark).counts
    assert (counts.read, counts.landed, counts.dead, counts.tombstones) == (9, 8, 1, 0)
    audited(one)

    one.write_spec(
        decode={"value": "json", "schema": "id int, name string", "key": key | {"schema": "id long"}},
        changes="upsert",
        table={"name": one.table_name},
    )
    with one.catalog().load_table(one.table_name).update_schema() as update:
        update.update_column(("_change_key", "id"), LongType())
        update.update_column(("_change_old_key", "id"), LongType())
    assert replay(one.spec(), one.settings(), one.catalog(), ReplayRequest()).replayed == 1
    found = rows(one, one.table_name)
    assert Counter(each["_change_op"] for each in found) == {"u": 5, "d": 4}
    assert found[-1]["_change_key"] == {"id": 99999999999}
    assert [each["id"] for each in found if each["_change_op"] == "d"][:3] == [0, 1, 2]
    audited(one)
