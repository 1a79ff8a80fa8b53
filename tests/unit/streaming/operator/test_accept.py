"""Answers to questions about a topic that was retired by mistake and is back, recorded on real tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.stamp.errors import NothingToAcceptError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import Decision
from tests.helpers.real_stream import DEAD, SINK, TOPIC, RealStream
from tests.helpers.stream_history import FAILED, ROW

HERE, BACK = TopicPartition(TOPIC, 0), TopicPartition("back", 0)
IDS = {TOPIC: "id-here", "back": "id-back"}


@pytest.fixture
def stream(tmp_path: Path) -> RealStream:
    """`back` was retired at 100; the newest dead letters are older, and say 60 of it."""
    made = RealStream(tmp_path)
    made.land([ROW, FAILED, ROW])
    sink, dead = newest(made, SINK), newest(made, DEAD)
    assert sink.newest is not None and dead.newest is not None
    retired = {"back": Retired("id-back", 1_000, {0: 100})}
    sink.restamp(replace(sink.newest.claimed(1), topics={TOPIC: "id-here"}, retired=retired))
    said = dead.newest.claimed(1)
    dead.restamp(replace(said, start={**said.start, BACK: 50}, position={**said.position, BACK: 60}))
    return made


def newest(stream: RealStream, name: str) -> Target:
    target = Target(stream.catalog(), name, "payments")
    target.read()
    return target


def kafka_with(earliest: int, latest: int, topics: dict[str, str] = IDS) -> Any:
    """What connects to brokers whose topic `back` has these offsets."""

    class Log:
        def state(self, source: object) -> LogState:
            there = {HERE: (0, 3), BACK: (earliest, latest)}
            known = {p: at for p, at in there.items() if p.topic in topics}
            return LogState(topics, {p: at[0] for p, at in known.items()}, {p: at[1] for p, at in known.items()})

        def identities(self, asked: list[str]) -> dict[str, str]:
            return {topic: topics[topic] for topic in asked if topic in topics}

    return Log


def recorded(stream: RealStream, kafka: Any, **answer: Any) -> dict[str, Decision]:
    return record_answer(stream.spec, stream.settings, kafka, Answer(**answer), "ada: it is back")


def test_what_retention_removed_of_it_is_passed(stream: RealStream) -> None:
    passed = Decision("lost_offsets", passed={BACK: OffsetRange(100, 130)})
    assert recorded(stream, kafka_with(130, 200), lost_offsets=True) == {SINK: passed}
    after = newest(stream, SINK).newest
    assert after is not None and after.position == {HERE: 3, BACK: 130}
    assert (after.topics, after.retired) == (IDS, {})


def test_a_log_that_was_cut_goes_on_at_its_end(stream: RealStream) -> None:
    cut = Decision("cut_topic", again={BACK: OffsetRange(20, 100)})
    assert recorded(stream, kafka_with(0, 20), recreated_topic="back") == {DEAD: cut, SINK: cut}
    for name in (SINK, DEAD):
        after = newest(stream, name).newest
        assert after is not None and after.position.get(BACK, 20) == 20
        assert after.retired == {}


@pytest.mark.parametrize("answer", [{"lost_offsets": True}, {"recreated_topic": "back"}, {"lost_topic": "back"}])
def test_what_dead_letters_last_said_of_it_is_no_question(stream: RealStream, answer: dict[str, Any]) -> None:
    with pytest.raises(NothingToAcceptError):
        recorded(stream, kafka_with(80, 100), **answer)
