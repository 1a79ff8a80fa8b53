"""What a stream says it is complete through, while transactions are open and producers' clocks are wrong."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

from jobs.streaming.driver.watch import lag
from jobs.tables.commit.history.stamp_history import history
from orchestration.cli.main import main
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere
from tests.integration.pipeline import GOOD, Pipeline, payment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


def through(one: Pipeline) -> int | None:
    newest = history(one.table().metadata, one.stream).newest
    return newest.valid_through_ms if newest else None


def open_transaction(one: Pipeline, records: int) -> Producer:
    """A transaction that somebody has begun and not ended, with so many records in partition 0."""
    producer = Producer({"bootstrap.servers": one.address, "transactional.id": one.stream})
    producer.init_transactions(120)
    producer.begin_transaction()
    for number in range(records):
        producer.produce(one.stream, payment(number, GOOD), partition=0)
    assert producer.flush(120) == 0
    return producer


def status(one: Pipeline) -> dict:
    result = CliRunner().invoke(main, ["--home", str(one.home), "status", one.stream, "--json"])
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.stdout)["streams"]
    return found


def test_records_of_an_open_transaction_are_not_called_in(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline()
    one.produce({GOOD: 10})
    one.drain(spark)
    before = through(one)
    assert before is not None
    producer = open_transaction(one, 4)
    # Behind the open ones, so decided, and not readable either; and in the other partition.
    one.produce({GOOD: 6}, partition=0)
    one.produce({GOOD: 3}, partition=1)
    drained = one.drain(spark)
    assert (drained.counts.landed, sum(drained.lag.values()), sum(drained.undecided.values())) == (3, 0, 10)
    assert through(one) == before, "what was said before stays, though the lag is 0"
    said = status(one)
    assert (said["lag"], said["undecided_records"]) == (0, 10)
    ended = time.time_ns() // 1_000_000
    producer.commit_transaction(30)
    drained = one.drain(spark)
    assert (drained.counts.landed, sum(drained.undecided.values())) == (10, 0)
    assert (through(one) or 0) >= ended


def test_times_of_the_broker_are_a_proof(pipeline: Make, spark: SparkSession) -> None:
    one = pipeline(topic=False, partitions=1)
    one.create_topic(config={"message.timestamp.type": "LogAppendTime"})
    one.write_spec(source={"topics": [one.stream], "max_records_per_batch": 10})
    one.produce({GOOD: 10})
    between = time.time_ns() // 1_000_000
    wait_for(lambda: time.time_ns() // 1_000_000 > between, "the clock")
    one.produce({GOOD: 10})
    said: list[int | None] = []
    one.drain(spark, on_progress=lambda progress: said.append(through(one)))
    assert said[0] is not None
    assert said[0] <= between < (said[1] or 0)


def test_a_transaction_that_nobody_ends_is_told(
    pipeline: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag, "_LAG_SECONDS", 0.2)
    monkeypatch.setattr(lag.LagWatch.__init__, "__defaults__", (1.0,))
    one = pipeline()
    one.write_spec(trigger={"every": "1s"})
    one.produce({GOOD: 10})
    producer = open_transaction(one, 4)
    with caplog.at_level(logging.WARNING), DriverHere(one, spark) as driver:
        driver.has_landed(10)

        def told() -> bool:
            return f"{one.stream} --partition 0" in caplog.text

        wait_for(told, "a warning")
        work = driver.heartbeat.current().work
        assert (work.total_lag, work.total_undecided) == (0, 4)
        assert work.undecided_since is not None
        producer.abort_transaction(30)
        wait_for(lambda: driver.heartbeat.current().work.total_undecided == 0, "the end of the transaction")
        assert driver.heartbeat.current().work.undecided_since is None
    driver.end()
    assert caplog.text.count("find-hanging") == 1
    assert "4 records have waited" in caplog.text
