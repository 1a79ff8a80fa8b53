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
    name = {"name": f"{one.stream}.dead", "create": True, "replication_factor": 1}
    letters = {"table": one.dead_name, "topic": name | topic}
    one.write_spec(errors={"tolerance": "none", "dead_letters": letters})
    one.produce({GOOD: 10, TRUNCATED: 2}, partition=1)
    return one


def published(one: Pipeline) -> list[Read]:
    return Letters(one.home, one.address, one.stream).read()


def stop(one: Pipeline, spark: SparkSession) -> str:
    with pytest.raises(ToleranceError) as stopped:
        one.drain(spark)
    assert "partition 1, offset 10" in stopped.value.message
    assert sum(one.landed().values()) == sum(one.dead().values()) == 0
    return stopped.value.message


def test_each_stop_names_it_and_it_is_there_once(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = without_tolerance(pipeline, stops=True)
    said = f"The record is in topic {one.stream}.dead, marked with __frazil.stopped"
    assert stop(one, spark).endswith(f"{said}.")
    assert stop(one, spark).endswith(f"{said}, since an earlier stop.")
    (letter,) = published(one)
    assert letter.where == (one.stream, 1, 10)
    assert (letter.key, letter.last("__frazil.error_class")) == (b"k11", "malformed_json")
    assert letter.headers[-1] == ("__frazil.stopped", b"true")
    # Going on, it becomes a letter as any other.
    spec = one.spec_file.read_text()
    one.spec_file.write_text(spec.replace("tolerance: none", "tolerance: data"))
    one.drain(spark)
    again = [each for each in published(one) if "__frazil.stopped" not in dict(each.headers)]
    assert [each.where[2] for each in again] == [10, 11]
    one.assert_exactly_once()


def test_nobody_who_does_not_ask_for_it_gets_it(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = without_tolerance(pipeline)
    assert "in topic" not in stop(one, spark)


def test_a_cluster_that_is_away_keeps_nothing_from_stopping(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = without_tolerance(pipeline, stops=True, kafka={"bootstrap_servers": "127.0.0.1:1"})
    settings = one.home / "frazil.yaml"
    settings.write_text(settings.read_text().replace("kafka:\n", "kafka:\n  request_timeout: 3s\n"))
    assert f"The record is not in topic {one.stream}.dead: Kafka at 127.0.0.1:1" in stop(one, spark)


@pytest.mark.parametrize("step", ["stopped_before_commit", "stopped_after_commit"])
def test_killed_while_it_is_published_it_is_there_once(
    pipeline: Callable[..., Pipeline], spark: SparkSession, step: str
) -> None:
    one = without_tolerance(pipeline, stops=True)
    one.run_and_die(step)
    stop(one, spark)
    assert [each.where[2] for each in published(one)] == [10]
