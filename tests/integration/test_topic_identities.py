"""Which topics and partitions a stream reads; and positions, which no edit moves forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from jobs.base.errors import FrazilError
from jobs.tables.commit.stamp.errors import GapError
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def test_a_pattern_means_whole_names(pipeline: Make, spark: SparkSession) -> None:
    """Names that only contain a match are there at the start, come under a query that runs, and are nobody's."""
    one = pipeline(topic=False)
    near = [f"x{one.stream}.a", f"{one.stream}.a.dead", f"{one.stream}.20261101.dead", f"{one.stream}-20261101"]
    for name in (f"{one.stream}.a", *near):
        one.create_topic(name)
        one.produce({GOOD: 10}, topic=name)
    # Java would not read this pattern: its named groups have no P.
    one.write_spec(source={"topics_pattern": rf"{one.stream}\.(?P<day>[a-z]|\d{{8}})"})
    assert one.drain(spark).counts.landed == 10
    one.assert_exactly_once([f"{one.stream}.a"])
    one.write_spec(source={"topics_pattern": rf"{one.stream}\.(?P<day>[a-z]|\d{{8}})"}, trigger={"every": "1s"})
    with DriverHere(one, spark) as driver:
        wait_for(lambda: driver.heartbeat.current().state == "running", "the query")
        for name in (f"x{one.stream}.b", f"{one.stream}.b.dead", f"{one.stream}.20261102"):
            one.create_topic(name)
            one.produce({GOOD: 10}, topic=name)
        driver.has_landed(10)
        one.produce({GOOD: 5}, topic=f"{one.stream}.a")
        driver.has_landed(15)
    driver.end()
    one.assert_exactly_once([f"{one.stream}.a", f"{one.stream}.20261102"])


def test_partitions_added_while_a_driver_runs(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(trigger={"every": "1s"}, source={"topics": [one.stream], "start": "latest"})
    one.produce({GOOD: 10})
    with DriverHere(one, spark) as driver:
        wait_for(lambda: driver.heartbeat.current().state == "running", "the query")
        admin = AdminClient({"bootstrap.servers": one.address})
        for future in admin.create_partitions([NewPartitions(one.stream, 3)]).values():
            future.result(30)
        wait_for(lambda: len(admin.list_topics(timeout=60).topics[one.stream].partitions) == 3, "the third partition")
        one.produce({GOOD: 7}, partition=2)
        driver.has_landed(7)
    assert {(p, n) for _, p, n in one.landed()} == {(2, at) for at in range(7)}, "read from its first record"


def test_start_at_offsets(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 20})
    one.write_spec(source={"topics": [one.stream], "start": {"offsets": {one.stream: {0: 99}}}})
    with pytest.raises(FrazilError, match=rf"{one.stream}-0 at 99, which keeps \[0, 10\]"):
        one.drain(spark)
    one.write_spec(source={"topics": [one.stream], "start": {"offsets": {one.stream: {0: 7}}}})
    assert one.drain(spark).counts.read == 3 + 10, "nothing was stamped by the start that was refused"


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
    assert one.drain(spark).counts.landed == 6, "it goes on at its position"
    one.assert_exactly_once([one.stream, other])


def test_no_edit_moves_the_position_past_unread_records(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    other = f"{one.stream}.more"
    one.create_topic(other)
    both = {"topics": [one.stream, other]}

    def fill() -> None:
        for topic in both["topics"]:
            one.produce({GOOD: 10, TRUNCATED: 1}, topic=topic)

    one.write_spec(source=both)
    fill()
    one.drain(spark)
    # Another start, a pattern in place of names, and another group: the stamps decide.
    fill()
    latest = {"start": "latest"}
    one.write_spec(source={"topics_pattern": rf"{one.stream}(\.more)?", "group": "another", **latest})
    assert one.drain(spark).counts.read == 22
    # With the state lost, too.
    fill()
    one.lose_state()
    assert one.drain(spark).counts.read == 22
    # Other tables, where the former ones are known: `latest` would pass over what nobody read.
    fill()
    moved: dict[str, Any] = {"name": f"{one.table_name}_2", "partition_by": []}
    one.write_spec(source=both | latest, table=moved)
    ranges = rf"{one.stream}-0 \[\d+, \d+\).*{other}-0 \[\d+, \d+\)"
    with pytest.raises(
        GapError, match=rf"(?s)landed in {one.table_name}, {one.dead_name} until now.*{ranges}.*offsets:"
    ):
        one.drain(spark)
    # The tables renamed in the catalog as well: their stamps came along.
    catalog = one.catalog()
    assert not catalog.table_exists(moved["name"]), "a start that is refused creates nothing"
    catalog.rename_table(one.table_name, moved["name"])
    catalog.rename_table(one.dead_name, f"{moved['name']}_dead")
    assert one.drain(spark).counts.read == 22
