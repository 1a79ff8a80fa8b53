"""The record that stops a stream without tolerance, in the topic of its letters: once, and marked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from jobs.commit.errors import ToleranceError
from tests.integration.dead_letters import Letters, Read
from tests.integration.pipeline import GOOD, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def without_tolerance(pipeline: Callable[..., Pipeline], **topic: Any) -> Pipeline:
    one = pipeline()
    write_file(one, **topic)
    one.produce({GOOD: 10, TRUNCATED: 2}, partition=1)
    return one


def write_file(one: Pipeline, tolerance: str = "none", **topic: Any) -> None:
    name = {"name": f"{one.stream}.dead", "create": True, "replication_factor": 1}
    letters = {"table": one.dead_name, "topic": name | topic}
    one.write_spec(errors={"tolerance": tolerance, "dead_letters": letters})


def published(one: Pipeline) -> list[Read]:
    return Letters(one.home, one.address, one.stream).read()


def stop(one: Pipeline, spark: SparkSession) -> str:
    with pytest.raises(ToleranceError) as stopped:
        one.drain(spark)
    assert "partition 1, offset 10" in stopped.value.message
    assert sum(one.landed().values()) == sum(one.dead().values()) == 0
    return stopped.value.message


def test_it_is_there_once_though_the_driver_is_killed_before_it_says_so(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = without_tolerance(pipeline)
    assert "in topic" not in stop(one, spark), "the file does not ask for it"
    write_file(one, stops=True)
    one.run_and_die("stopped_after_commit")
    said = f"The record is in topic {one.stream}.dead, marked with __frazil.stopped, since an earlier stop."
    assert stop(one, spark).endswith(said)
    (letter,) = published(one)
    assert letter.where == (one.stream, 1, 10)
    assert (letter.key, letter.last("__frazil.error_class")) == (b"k11", "malformed_json")
    assert letter.headers[-1] == ("__frazil.stopped", b"true")
    # Going on, it becomes a letter as any other.
    write_file(one, tolerance="data", stops=True)
    one.drain(spark)
    again = [each for each in published(one) if "__frazil.stopped" not in dict(each.headers)]
    assert [each.where[2] for each in again] == [10, 11]
    one.assert_exactly_once()


def test_a_cluster_that_is_away_keeps_nothing_from_stopping(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = without_tolerance(pipeline, stops=True, kafka={"bootstrap_servers": "127.0.0.1:1"})
    settings = one.home / "frazil.yaml"
    settings.write_text(settings.read_text().replace("kafka:\n", "kafka:\n  request_timeout: 3s\n"))
    assert f"The record is not in topic {one.stream}.dead: Kafka at 127.0.0.1:1" in stop(one, spark)
