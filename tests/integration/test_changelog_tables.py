"""Streams of changes end to end: a whole database, with a mirror for each table, and upserts with tombstones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import LongType

from jobs.catalog import connect_catalog
from jobs.mirror.mirror_run import IncrementMerger, chosen_mirrors, run_mirror
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


def merged(one: Pipeline, spark: SparkSession) -> dict[str, int | None]:
    """What is new is merged into each mirror that there is; how many changes of each, None where nothing was new."""
    settings, session = one.settings(), spark.newSession()
    merger, found = IncrementMerger(settings, lambda: session), dict[str, int | None]()
    with connect_catalog(settings) as catalog:
        for spec, mirror in chosen_mirrors(one.spec(), catalog):
            done = run_mirror(spec, mirror, settings, catalog, merger)
            found[mirror.table] = done.result.counts.read if done.result else None
    return found


def rows_of_changes(one: Pipeline, changelog: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The rows that all changes of a changelog make, one after the other in the order of their offsets, by key."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in rows(one, changelog):
        key = tuple(each["_change_key"].values())
        before = found.get(tuple((each["_change_old_key"] or {}).values()) or key, {})
        if each["_change_op"] == "d":
            # What a key change does not send is that of the row as it was.
            found[key] = {**found.get(key, {}), "gone": True}
            continue
        unsent = each["_change_unavailable"] or []
        values = {name: value for name, value in each.items() if not name.startswith("_")}
        found[key] = {**values, **{name: before.get(name) for name in unsent}}
    return {key: row for key, row in found.items() if "gone" not in row}


def assert_mirrored(one: Pipeline, name: str, key: Sequence[str]) -> None:
    """The mirror of a table is what all changes of its changelog make."""
    expected = rows_of_changes(one, f"tests.{one.stream}_{name}")
    found = one.catalog().load_table(f"shop.{one.stream}_{name}").scan().to_arrow().drop(["_change_order"]).to_pylist()
    assert {tuple(row[each] for each in key): row for row in found} == expected
    assert len(found) == len(expected) > 0


@pytest.mark.timeout(300)
def test_a_whole_database_has_a_changelog_and_a_mirror_for_each_table(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline(partitions=1, topic=False)
    wanted = [each for each in samples("postgresql") if each.topic.endswith(("orders", "large"))]
    by_topic: dict[str, list[Sample]] = {}
    for each in wanted:
        by_topic.setdefault(f"{one.stream}.{each.topic.rpartition('.')[2]}", []).append(each)
    heartbeats = [each for each in samples("postgresql") if each.topic.startswith("__debezium-heartbeat")]
    orders, large = by_topic[f"{one.stream}.orders"] + heartbeats, by_topic[f"{one.stream}.large"]
    # A key changes: it is deleted, and the row with the other key comes after the next merge.
    changes = [each for each, sample in enumerate(orders) if any(h == "__debezium.newkey" for h, _ in sample.headers)]
    cut = changes[0] + 1
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
        mirrors=[{"table": "shop.{table}", "buckets": 2}],
        evolve={"add": "auto", "widen": "auto"},
        maintenance={"enabled": False},
    )

    def land(topic: str, found: Sequence[Sample], *, new: bool) -> None:
        if new:
            create_topic(one.address, f"{one.stream}.{topic}", 1)
        produce(one, f"{one.stream}.{topic}", [(each.key, each.value, list(each.headers)) for each in found])

    def mirror(name: str) -> str:
        return f"shop.{one.stream}_{name}"

    def changed(found: Sequence[Sample]) -> int:
        return sum(each.value is not None and each not in heartbeats for each in found)

    land("orders", orders[:cut], new=True)
    one.drain(spark)
    assert merged(one, spark) == {mirror("orders"): changed(orders[:cut])}
    assert_mirrored(one, "orders", ["region", "id"])

    # A table appears in the source, and the one that was there goes on, with columns that it did not have.
    land("large", large, new=True)
    land("orders", orders[cut:], new=False)
    counts = one.drain(spark).counts
    assert (counts.dead, counts.filtered) == (0, len(heartbeats))
    assert counts.landed == changed(orders[cut:]) + changed(large)
    assert merged(one, spark) == {mirror("orders"): changed(orders[cut:]), mirror("large"): changed(large)}
    assert_mirrored(one, "orders", ["region", "id"])
    assert_mirrored(one, "large", ["id"])
    assert merged(one, spark) == dict.fromkeys([mirror("orders"), mirror("large")])

    found = rows(one, f"tests.{one.stream}_orders")
    # What came with later schemas is a column of all.
    assert {"region", "id", "amount", "notes", "paid"} <= {*found[0]}
    assert [each["_change_old_key"] for each in found if each["_change_old_key"]] == [{"region": "eu", "id": 2}]
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
