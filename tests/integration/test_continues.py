"""What a stream meets in Kafka and the catalog, and goes on from by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyiceberg.types import LongType

from jobs.commit.stamp_history import history
from jobs.errors import FrazilError
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, TOMBSTONE, TRUNCATED, Pipeline
from tests.integration.topics import delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def test_batches_are_bounded_and_continue(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 100})
    one.produce({GOOD: 240, TRUNCATED: 6, TOMBSTONE: 4})
    drained = one.drain(spark)
    assert len(drained.batches) >= 3
    assert max(batch.counts.read for batch in drained.batches) <= 101
    assert (drained.counts.landed, drained.counts.dead, drained.counts.tombstones) == (240, 6, 4)
    assert one.drain(spark).counts.read == 0, "nothing is read twice"
    one.assert_exactly_once()
    newest = one.table().metadata.properties[f"frazil.stamp.{one.stream}"]
    assert '"totals":[250,240,6,4,0]' in newest


def test_start_latest_is_fixed_by_the_first_claim(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "start": "latest"})
    one.produce({GOOD: 10})
    assert one.drain(spark).counts.read == 0
    one.produce({GOOD: 5})
    assert one.drain(spark).counts.read == 5, "the second start does not resolve `latest` anew"


def test_start_at_offsets(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 20})
    one.write_spec(source={"topics": [one.stream], "start": {"offsets": {one.stream: {0: 99}}}})
    with pytest.raises(FrazilError, match=rf"{one.stream}-0 at 99, which keeps \[0, 10\]"):
        one.drain(spark)
    one.write_spec(source={"topics": [one.stream], "start": {"offsets": {one.stream: {0: 7}}}})
    assert one.drain(spark).counts.read == 3 + 10, "nothing was stamped by the start that was refused"


def test_stamped_snapshots_expired_and_state_lost(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 20, TRUNCATED: 2})
    one.drain(spark)
    for name in (one.table_name, one.dead_name):
        table = one.catalog().load_table(name)
        table.append(table.scan().to_arrow().slice(0, 0))
        table = one.catalog().load_table(name)
        old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.metadata.current_snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()
    one.lose_state()
    one.produce({GOOD: 20})
    assert one.drain(spark).counts.read == 20
    one.assert_exactly_once()


def test_partitions_added(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 20})
    one.drain(spark)
    admin = AdminClient({"bootstrap.servers": one.address})
    for future in admin.create_partitions([NewPartitions(one.stream, 3)]).values():
        future.result(30)
    wait_for(lambda: len(admin.list_topics(timeout=10).topics[one.stream].partitions) == 3, "the third partition")
    one.partitions = 3
    one.produce({GOOD: 30})
    one.drain(spark)
    one.assert_exactly_once()


def test_daily_topics_retire(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline(topic=False)
    days = [f"{one.stream}.2026110{day}" for day in (1, 2, 3)]
    one.write_spec(source={"topics_pattern": rf"{one.stream}\.\d{{8}}"})
    for day in days[:2]:
        one.create_topic(day)
        one.produce({GOOD: 15, TRUNCATED: 1}, topic=day)
    one.drain(spark)
    one.assert_exactly_once(days[:2])
    delete_topic(one.address, days[0])
    one.create_topic(days[2])
    one.produce({GOOD: 10}, topic=days[2])
    drained = one.drain(spark)
    assert drained.retired == (days[0],)
    assert drained.counts.landed == 10
    assert {partition.topic for partition in drained.positions} == set(days[1:])
    newest = history(one.table().metadata, one.stream).newest
    assert newest is not None
    assert {p.topic for p in newest.position} == {p.topic for p in newest.start} == set(days[1:]) == {*newest.topics}
    assert newest.retired[days[0]].positions == {0: 8, 1: 8}
    assert sum(one.landed().values()) == 40


def test_topic_left_out_for_a_while(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    other = f"{one.stream}.more"
    one.create_topic(other)
    one.write_spec(source={"topics": [one.stream, other]})
    one.produce({GOOD: 10})
    one.produce({GOOD: 10}, topic=other)
    one.drain(spark)
    one.write_spec(source={"topics": [one.stream]})
    one.produce({GOOD: 4})
    one.produce({GOOD: 6}, topic=other)
    assert one.drain(spark).counts.landed == 4
    one.write_spec(source={"topics": [one.stream, other]})
    assert one.drain(spark).counts.landed == 6, "it goes on where it stood"
    one.assert_exactly_once([one.stream, other])


def test_another_writer_and_a_compaction_meanwhile(pipeline: Make, spark: SparkSession) -> None:

    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 50})
    one.produce({GOOD: 150, TRUNCATED: 3})

    def meddle(progress: object) -> None:
        table = one.table()
        table.append(table.scan().to_arrow().slice(0, 0))

    drained = one.drain(spark, on_progress=meddle)
    assert drained.refusals >= 2, "each of the later batches met a head that had moved"
    one.assert_exactly_once()


def test_schema_and_partitioning_altered_meanwhile(pipeline: Make, spark: SparkSession) -> None:

    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 50})
    one.produce({GOOD: 150, TRUNCATED: 3})
    changes = iter(["schema", "spec", "nothing", "nothing", "nothing"])

    def meddle(progress: object) -> None:
        change = next(changes)
        if change == "schema":
            with one.table().update_schema() as update:
                update.add_column("added_by_somebody", LongType())
        elif change == "spec":
            with one.table().update_spec() as update:
                update.add_identity("note")

    one.drain(spark, on_progress=meddle)
    one.assert_exactly_once()
    assert {file.file.spec_id for file in one.table().scan().plan_files()} == {0, 1}


def test_transactions_and_headers(pipeline: Make, spark: SparkSession) -> None:
    from confluent_kafka import Producer

    one = pipeline()
    producer = Producer({"bootstrap.servers": one.address, "transactional.id": one.stream})
    producer.init_transactions(30)
    for commit in (True, False, True):
        producer.begin_transaction()
        for number in range(20):
            value = b"{" if number == 7 else b'{"id":"a","amount":1.5,"created_at":"2026-11-01T10:00:00Z"}'
            producer.produce(
                one.stream, value, key=b"\x00\xff", headers=[("trace", b"\x01"), ("trace", None)], partition=0
            )
        producer.commit_transaction(30) if commit else producer.abort_transaction(30)
    drained = one.drain(spark)
    assert (drained.counts.landed, drained.counts.dead) == (38, 2), "what was aborted is not read"
    assert drained.lag[next(iter(drained.lag))] == 0
    letter = one.dead_table().scan().to_arrow().to_pylist()[0]
    assert letter["key"] == b"\x00\xff"
    assert letter["value"] == b"{"
    assert letter["headers"] == [{"key": "trace", "value": b"\x01"}, {"key": "trace", "value": None}]
    assert letter["timestamp_type"] == "CreateTime"
    assert letter["error_class"] == "malformed_json"
