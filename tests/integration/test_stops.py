"""What a stream meets in Kafka and the catalog that stops it: it says what is wrong and how to go on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from jobs.commit.errors import (
    NothingToAcceptError,
    OffsetsLostError,
    RolledBackError,
    TargetRecreatedError,
    ToleranceError,
    TopicLostError,
    TopicRecreatedError,
)
from jobs.errors import FrazilError
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TRUNCATED, Pipeline
from tests.integration.test_spark_reads import with_catalog
from tests.integration.topics import delete_topic, read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


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
