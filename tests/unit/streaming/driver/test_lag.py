"""What the watch over Kafka tells a driver: a query is outdated by what was seen since it began, by nothing older."""

from __future__ import annotations

import socket
import time
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.clients.kafka.metadata import KafkaUnavailableError, LogEnds, quick_kafka
from jobs.config.settings.settings import KafkaSettings
from jobs.config.stream.source import Source
from jobs.streaming.driver.context.progress import WorkLog
from jobs.streaming.driver.watch.lag import LagWatch
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition

P = TopicPartition("t", 0)


class Log:
    """Kafka's side as `KafkaLog` tells it; a query may begin while it is asked."""

    def __init__(self) -> None:
        self.epoch: int = 1
        self.there: list[str] = ["t"]
        self.meanwhile: Any = lambda: None

    def topics(self, source: object) -> dict[str, list[int]]:
        return {topic: [0] for topic in self.there}

    def ends(self, partitions: object) -> LogEnds:
        answer = LogEnds({P: 5}, {P: 5}, {P: self.epoch})
        self.meanwhile()
        return answer


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def watch(log: Log) -> LagWatch:
    work = WorkLog(0.0)
    work.opened({P: 5})
    spec: Any = SimpleNamespace(source=Source(topics=("t", "u")))
    kafka: Any = log
    made = LagWatch(spec, kafka, "there:9092", work)
    made.follow(reads(1))
    return made


def reads(epoch: int, *topics: str) -> LogState:
    return LogState(dict.fromkeys(topics or ("t",), "id"), {P: 0}, {P: 5}, leader_epochs={P: epoch})


def test_another_leader_or_a_new_topic_outdates_a_query(watch: LagWatch, log: Log) -> None:
    watch._look()
    assert not watch.outdated
    # Also an epoch below: the topic is another one.
    for epoch in (2, 0):
        log.epoch = epoch
        watch._look()
        assert watch.outdated
        watch.follow(reads(epoch))
        assert not watch.outdated
    log.there = ["t", "u"]
    watch._look()
    assert watch.outdated
    watch.follow(reads(0, "t", "u"))
    watch._look()
    assert not watch.outdated


def test_a_look_that_began_before_the_query_does_not_outdate_it(watch: LagWatch, log: Log) -> None:
    log.meanwhile = lambda: watch.follow(reads(2))
    watch._look()
    assert not watch.outdated
    log.meanwhile = lambda: None
    watch._look()
    assert watch.outdated, "the next look is told to the query that runs"


def test_brokers_that_do_not_answer_are_away_since_the_first_look_that_got_no_answer(watch: LagWatch, log: Log) -> None:
    watch._report(None)
    assert (watch.away, watch._work.work(0.0).total_lag) == (None, 0)
    known = watch._work.work(0.0).complete_through
    with socket.create_server(("127.0.0.1", 0)) as silent:
        brokers = KafkaSettings(bootstrap_servers=f"127.0.0.1:{silent.getsockname()[1]}")
        watch._kafka = quick_kafka(brokers, 0.2)
        began = time.time()
        watch._report(watch._report(None))
    away, work = watch.away, watch._work.work(0.0)
    assert away is not None
    assert began <= away.at <= began + 0.2
    assert f"(since {datetime.fromtimestamp(away.at, UTC):%Y-%m-%d %H:%M:%S} UTC)" in away.message
    assert (work.total_lag, work.total_undecided, work.lag_unknown_since) == (None, None, away.at)
    assert work.complete_through == known, "what is known of the table stays known"

    def refuse() -> None:
        raise KafkaUnavailableError("Kafka at there:9092: Unknown topic or partition")

    watch._kafka, log.meanwhile = log, refuse  # type: ignore[assignment]
    watch._report(None)
    assert (watch.away, watch._work.work(0.0).lag_unknown_since) == (None, away.at), "a broker answers"
    log.meanwhile = lambda: None
    watch._report(None)
    assert (watch.away, watch._work.work(0.0).total_lag) == (None, 0)
