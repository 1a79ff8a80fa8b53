"""Which topics a stream reads, by name, pattern and id; and positions, which no edit moves forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewPartitions

from jobs.commit.errors import (
    GapError,
    TopicLostError,
    TopicRecreatedError,
)
from jobs.commit.log_state import NO_ID
from jobs.commit.stamp_history import history
from jobs.errors import FrazilError
from jobs.kafka.metadata import KafkaLog
from orchestration.cli.main import main
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere, once
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline, daily
from tests.integration.test_audit import audited
from tests.integration.topics import delete_topic

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


def test_a_topic_that_is_called_unknown_for_a_while(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By brokers that answer, and of which the list and the description lack it."""
    one = pipeline(topic=False)
    days = daily(one, 2)
    for day in days:
        one.produce({GOOD: 10, TRUNCATED: 2}, topic=day)
    one.drain(spark)
    real = KafkaLog.topics, KafkaLog.identities
    with monkeypatch.context() as hidden:
        hidden.setattr(
            KafkaLog, "topics", lambda log, source: {t: p for t, p in real[0](log, source).items() if t != days[0]}
        )
        hidden.setattr(KafkaLog, "identities", lambda log, topics: real[1](log, [t for t in topics if t != days[0]]))
        one.produce({GOOD: 2}, topic=days[1])
        assert one.drain(spark).retired == (days[0],)
        one.produce({GOOD: 2}, topic=days[1])
        one.drain(spark)
    one.produce({GOOD: 4}, topic=days[0])
    assert one.drain(spark).counts.landed == 4
    assert one.drain(spark).counts.read == 0
    one.assert_exactly_once(days)
    assert audited(one, "--full")[0] == 0
    # Deleted in truth, and created anew: another topic, from its first record.
    delete_topic(one.address, days[0])
    one.produce({GOOD: 2}, topic=days[1])
    assert one.drain(spark).retired == (days[0],)
    one.create_topic(days[0])
    one.produce({GOOD: 6}, topic=days[0])
    assert one.drain(spark).counts.landed == 6


def test_topics_without_ids(pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """As brokers before Kafka 2.8 have them: what is not known is said, and what shows is noticed all the same."""
    real = KafkaLog.identities
    one = pipeline()
    one.produce({GOOD: 10})
    one.drain(spark)
    monkeypatch.setattr(KafkaLog, "identities", lambda log, topics: dict.fromkeys(real(log, topics), NO_ID))
    one.produce({GOOD: 10})
    assert one.drain(spark).counts.landed == 10, "brokers that give no ids any more are no other topic"
    newest = history(one.table().metadata, one.stream).newest
    assert newest is not None
    assert newest.topics == real(KafkaLog(one.settings().kafka), [one.stream]), "an id that was known stays known"
    other = f"{one.stream}.more"
    one.create_topic(other)
    one.write_spec(source={"topics": [one.stream, other]})
    one.produce({GOOD: 10}, topic=other)
    one.drain(spark)
    shown = CliRunner().invoke(main, ["--home", str(one.home), "validate"])
    assert f"topic {one.stream}, {other} has no id" in " ".join(shown.stdout.split()), shown.output
    shown = CliRunner().invoke(main, ["--home", str(one.home), "status", one.stream])
    assert f"without an id     topic {other}" in shown.stdout
    delete_topic(one.address, other)
    one.create_topic(other)
    one.produce({GOOD: 4}, topic=other)
    with pytest.raises(TopicRecreatedError, match=f"--recreated-topic {other}"):
        one.drain(spark)
    one.accept(recreated_topic=other)
    assert one.drain(spark).counts.landed == 4
    # Where there are no epochs either, nothing is begun; what was begun goes on.
    ends = KafkaLog.ends
    monkeypatch.setattr(KafkaLog, "ends", lambda log, partitions: replace(ends(log, partitions), leader_epochs={}))
    one.produce({GOOD: 2}, topic=other)
    assert one.drain(spark).counts.landed == 2
    third = f"{one.stream}.third"
    one.create_topic(third)
    one.write_spec(source={"topics": [one.stream, other, third]})
    with pytest.raises(FrazilError, match=rf"(?s)give topic {third} no id.*Kafka 2\.1"):
        one.drain(spark)
    assert CliRunner().invoke(main, ["--home", str(one.home), "validate"]).exit_code == 1


def test_partitions_added_while_a_driver_runs(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.write_spec(trigger={"every": "1s"}, source={"topics": [one.stream], "start": "latest"})
    one.produce({GOOD: 10})
    with DriverHere(one, spark) as driver:
        wait_for(lambda: driver.heartbeat.current().state == "running", "the query")
        admin = AdminClient({"bootstrap.servers": one.address})
        for future in admin.create_partitions([NewPartitions(one.stream, 3)]).values():
            future.result(30)
        wait_for(lambda: len(admin.list_topics(timeout=10).topics[one.stream].partitions) == 3, "the third partition")
        one.produce({GOOD: 7}, partition=2)
        driver.has_landed(7)
    assert {(p, n) for _, p, n in one.landed()} == {(2, at) for at in range(7)}, "read from its first record"


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


def test_a_topic_that_was_left_out_and_deleted_meanwhile(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    other = f"{one.stream}.more"
    one.create_topic(other)
    both = {"topics": [one.stream, other], "max_records_per_batch": 10}
    one.write_spec(source=both)
    one.produce({GOOD: 10})
    one.produce({GOOD: 40}, topic=other)

    class Enough(Exception):
        pass

    def end() -> None:
        raise Enough

    with pytest.raises(Enough):
        one.drain(spark, on_progress=once(end))
    one.write_spec(source={"topics": [one.stream]})
    one.drain(spark)
    one.produce({GOOD: 5})
    one.drain(spark)
    delete_topic(one.address, other)
    one.write_spec(source=both)
    with pytest.raises(TopicLostError, match=rf"topic {other} is gone.*{other}-0 \[\d+, 20\)"):
        one.drain(spark)
