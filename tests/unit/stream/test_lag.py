"""What the watch over Kafka tells a driver: a query is outdated by what was seen since it began, by nothing older."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.commit.log_state import LogState
from jobs.commit.offsets import TopicPartition
from jobs.kafka.metadata import LogEnds
from jobs.spec.source import Source
from jobs.stream.lag import LagWatch
from jobs.stream.progress import WorkLog

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
