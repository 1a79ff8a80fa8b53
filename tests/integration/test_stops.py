"""What a stream meets in Kafka and the catalog: it goes on by itself, or stops and says what and how to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyiceberg.types import LongType

from jobs.commit.errors import (
    NothingToAcceptError,
    OffsetsLostError,
    RolledBackError,
    TargetRecreatedError,
    ToleranceError,
    TopicLostError,
    TopicRecreatedError,
)
from jobs.commit.stamp_history import history
from jobs.errors import FrazilError
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, TRUNCATED, Pipeline
from tests.integration.test_spark_reads import with_catalog
from tests.integration.topics import delete_topic, read_topic

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


def test_topic_deleted_before_it_was_read(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline(topic=False)
    days = [f"{one.stream}.2026110{day}" for day in (1, 2)]
    one.write_spec(source={"topics_pattern": rf"{one.stream}\.\d{{8}}", "max_records_per_batch": 10})
    for day in days:
        one.create_topic(day)
        one.produce({GOOD: 40}, topic=day)

    class Interrupted(FrazilError):
        pass

    def interrupt(progress: object) -> None:
        raise Interrupted("stopped by the test")

    with pytest.raises(Interrupted):
        one.drain(spark, on_progress=interrupt)
    delete_topic(one.address, days[0])
    with pytest.raises(TopicLostError, match=rf"(?s)topic {days[0]} is gone.*--lost-topic {days[0]}"):
        one.drain(spark)
    one.accept(lost_topic=days[0])
    one.drain(spark)
    assert {at for at in one.landed() if at[0] == days[1]} == {
        (days[1], p, o) for p, o, _ in read_topic(one.address, days[1])
    }


def test_topic_recreated(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 10, TRUNCATED: 2})
    one.drain(spark)
    delete_topic(one.address, one.stream)
    one.create_topic()
    one.produce({GOOD: 30, TRUNCATED: 2})
    with pytest.raises(TopicRecreatedError, match=f"(?s)--recreated-topic {one.stream}"):
        one.drain(spark)
    assert sum(one.landed().values()) == 10
    one.accept(recreated_topic=one.stream)
    drained = one.drain(spark)
    assert (drained.counts.landed, drained.counts.dead) == (30, 2)


def test_offsets_lost_to_retention(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 10})
    one.drain(spark)
    one.produce({GOOD: 40})
    admin = AdminClient({"bootstrap.servers": one.address})
    for future in admin.delete_records([TopicPartition(one.stream, 0, 15)]).values():
        future.result(30)
    with pytest.raises(OffsetsLostError, match=rf"topic {one.stream}, partition 0, offsets \[5, 15\)"):
        one.drain(spark)
    one.accept(lost_offsets=True)
    one.drain(spark)
    present = {(one.stream, partition, offset) for partition, offset, _ in read_topic(one.address, one.stream)}
    assert present <= one.landed().keys()
    assert set(one.landed().values()) == {1}
    assert len(one.landed()) == 40


@pytest.mark.parametrize("answer", ["keep", "reland"])
@pytest.mark.parametrize("which", ["table", "dead"])
def test_rolled_back(pipeline: Make, spark: SparkSession, which: str, answer: str) -> None:
    one = pipeline()
    one.produce({GOOD: 10, TRUNCATED: 1})
    one.drain(spark)
    table = one.table() if which == "table" else one.dead_table()
    back_to = table.metadata.current_snapshot_id
    assert back_to is not None
    one.produce({GOOD: 20, TRUNCATED: 3})
    one.drain(spark)
    table.refresh()
    table.manage_snapshots().rollback_to_snapshot(back_to).commit()
    with pytest.raises(RolledBackError, match=f"(?s){table.name()[-1]} was rolled back .*--rollback keep"):
        one.drain(spark)
    if answer == "reland":
        # What a driver was about to commit when the table was rolled back under it.
        one.folder().store.put(one.folder().pending(1), b"stale")
    one.accept(rollback=answer)
    assert one.folder().pending_records() == []
    one.produce({GOOD: 5, TRUNCATED: 1})
    one.drain(spark)
    counts = (sum(one.landed().values()), sum(one.dead().values()))
    if answer == "reland":
        one.assert_exactly_once()
        assert counts == (35, 5)
    else:
        assert counts == ((15, 5) if which == "table" else (35, 2))
        assert set(one.landed().values()) == {1}


@pytest.mark.parametrize("which", ["table", "dead"])
def test_table_dropped(pipeline: Make, spark: SparkSession, which: str) -> None:
    one = pipeline()
    one.produce({GOOD: 10, TRUNCATED: 2})
    one.drain(spark)
    name = one.table_name if which == "table" else one.dead_name
    one.catalog().drop_table(name)
    with pytest.raises(TargetRecreatedError, match=f"(?s){name} is gone.*--recreated {name}"):
        one.drain(spark)
    one.accept(recreated_table=name)
    one.produce({GOOD: 3, TRUNCATED: 1})
    one.drain(spark)
    assert set(one.landed().values()) == {1}
    assert sum(one.landed().values()) == 13
    assert sum(one.dead().values()) == (3 if which == "table" else 1)


def test_table_recreated_by_somebody_and_state_lost(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 10, TRUNCATED: 2})
    one.drain(spark)
    schema = one.dead_table().schema()
    one.catalog().drop_table(one.dead_name)
    one.catalog().create_table(one.dead_name, schema)
    one.lose_state()
    with pytest.raises(TargetRecreatedError, match="dropped and created again"):
        one.drain(spark)


def test_a_first_mistake_in_the_schema_costs_nothing(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    wrong = "id string not null, amount int not null, created_at timestamptz not null, note string"
    one.write_spec(wrong, source={"topics": [one.stream], "start": "latest"}, errors={"tolerance": "none"})
    one.drain(spark)
    # From here on, wherever the stream would begin by now.
    one.produce({GOOD: 10})
    with pytest.raises(ToleranceError):
        one.drain(spark)
    uuid = one.table().metadata.table_uuid
    one.write_spec(source={"topics": [one.stream], "start": "latest"}, table={"name": one.table_name})
    with pytest.raises(NothingToAcceptError, match=r"has no rows, and not the columns .*(?s:.*)Next: frazil run"):
        one.accept(recreated_table=one.table_name)
    assert one.drain(spark).counts.landed == 10
    table = one.table()
    assert (table.metadata.table_uuid, str(table.schema().find_type("amount"))) == (uuid, "decimal(12, 2)")
    assert table.spec().is_unpartitioned()
    assert set(one.landed().values()) == {1} and sum(one.landed().values()) == 10
    session, name = with_catalog(spark, one)
    assert session.table(name).where("amount >= 0").count() == 10
    # It has rows now: what is declared no longer changes it.
    one.write_spec(wrong)
    with pytest.raises(FrazilError, match="cannot hold what the spec declares: Column amount"):
        one.drain(spark)
    with pytest.raises(NothingToAcceptError, match="cannot hold what the spec declares"):
        one.accept(recreated_table=one.table_name)


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


def test_tolerance_none_and_the_breaker(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 90, NULL_AMOUNT: 6, TRUNCATED: 4})
    one.write_spec(errors={"tolerance": "none"})
    with pytest.raises(ToleranceError, match=rf"topic {one.stream}, partition \d, offset \d+: "):
        one.drain(spark)
    one.write_spec(errors={"stop_above": {"ratio": 0.05, "min_records": 50}})
    with pytest.raises(ToleranceError, match=r"(?s)10 of 100 .*6 × null_in_required.*4 × malformed_json"):
        one.drain(spark)
    assert sum(one.landed().values()) == sum(one.dead().values()) == 0
    data = Path(one.table().location().removeprefix("file://")) / "data"
    assert list(data.rglob("*.parquet")) == [], "nothing of a refused batch is left behind"
    one.write_spec()
    one.drain(spark)
    one.assert_exactly_once()


def test_the_window_of_the_breaker_survives_restarts_until_an_operator_goes_on(
    pipeline: Make, spark: SparkSession
) -> None:
    one = pipeline()
    one.write_spec(trigger="available_now", errors={"stop_above": {"window": {"of": "1h", "count": 5}}})
    one.produce({GOOD: 20, TRUNCATED: 4})
    one.drain(spark)
    one.produce({GOOD: 20, NULL_AMOUNT: 3})
    for _ in range(2):
        with pytest.raises(ToleranceError, match=r"(?s)7 of 47 records within 1h failed.*3 × null_in_required"):
            one.drain(spark)
    one.write_spec(trigger="available_now", errors={"stop_above": {"window": {"of": "1h", "count": 6}}})
    one.drain(spark)
    one.assert_exactly_once()


def test_topic_that_does_not_exist(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline(topic=False)
    with pytest.raises(FrazilError, match=f"topic {one.stream} does not exist"):
        one.drain(spark)


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
