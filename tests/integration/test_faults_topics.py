"""Topics that go, come anew or lose records while they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from jobs.tables.commit.stamp.errors import OffsetsLostError, TopicLostError, TopicRecreatedError
from tests.helpers.topics import delete_topic, read_topic
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere, at_step, once
from tests.integration.pipeline import GOOD, Pipeline, daily

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def delete_records(one: Pipeline, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": one.address})
    for future in admin.delete_records([TopicPartition(one.stream, p, before) for p in range(2)]).values():
        future.result(30)


def test_topic_deleted_while_it_is_read(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline(topic=False)
    days = daily(one, 2, max_records_per_batch=10)
    for day in days:
        one.produce({GOOD: 40}, topic=day)
    with pytest.raises(
        TopicLostError, match=rf"(?s)topic {days[0]} was deleted.*{days[0]}-0 \[\d+, 20\).*--lost-topic"
    ):
        one.drain(spark, on_progress=once(lambda: delete_topic(one.address, days[0])))
    with pytest.raises(TopicLostError):
        one.drain(spark)
    one.accept(lost_topic=days[0])
    assert one.drain(spark).retired == (days[0],)
    assert {at for at in one.landed() if at[0] == days[1]} == {
        (days[1], p, o) for p, o, _ in read_topic(one.address, days[1])
    }
    assert set(one.landed().values()) == {1}


def test_topic_recreated_while_it_is_read(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 10})
    one.produce({GOOD: 40})

    def recreate() -> None:
        delete_topic(one.address, one.stream)
        one.create_topic()
        one.produce({GOOD: 60})

    with pytest.raises(TopicRecreatedError, match=f"(?s)--recreated-topic {one.stream}"):
        one.drain(spark, on_progress=once(recreate))
    with pytest.raises(TopicRecreatedError):
        one.drain(spark)
    one.accept(recreated_topic=one.stream)
    assert one.drain(spark).counts.landed == 60


def test_retention_passes_a_query_that_runs(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    one.write_spec(trigger={"every": "1s"})
    one.produce({GOOD: 10})

    def pass_by() -> None:
        one.produce({GOOD: 60})
        delete_records(one, 25)

    with DriverHere(one, spark) as driver, at_step(monkeypatch, "before_spark_notes", pass_by):
        wait_for(lambda: driver.problem is not None, "the driver to stop")
    ranges = rf"topic {one.stream}, partition 0, offsets \[5, 25\).*partition 1, offsets \[5, 25\)"
    with pytest.raises(OffsetsLostError, match=f"(?s){ranges}.*--lost-offsets"):
        driver.end()
    one.accept(lost_offsets=True)
    one.drain(spark)
    assert {(one.stream, p, o) for p, o, _ in read_topic(one.address, one.stream)} <= one.landed().keys()
    assert (one.landed().total(), len(one.landed())) == (30, 30)
