"""Logs that are cut while nobody looks: what the leaders' epochs tell of them, and when they are asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from jobs.clients.kafka.metadata import KafkaUnavailableError, LogEnds
from jobs.streaming.driver.context.continuity import Continuity, log_departures
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.task.tally import Tally
from jobs.tables.commit.stamp.errors import TopicRecreatedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import LastRead, LastReads
from jobs.tables.commit.stamp.stamps import Stamp

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NEWEST = Stamp(
    "s",
    "batch",
    0,
    1,
    "c",
    start={P0: 0, P1: 0},
    position={P0: 10, P1: 20},
    topics={"t": "id"},
    last_reads={P0: LastRead(10, 10, 3), P1: LastRead(20, 17, 3)},
)


class Kafka:
    """Says where logs depart, and remembers what it was asked."""

    def __init__(self, **where: int) -> None:
        self.departs: dict[TopicPartition, int] = {TopicPartition("t", int(name[1:])): at for name, at in where.items()}
        self.asked: list[dict[TopicPartition, LastRead]] = []

    def departures(self, marks: LastReads) -> dict[TopicPartition, int]:
        if marks:
            self.asked.append(dict(marks))
        return {p: self.departs[p] for p, mark in marks.items() if self.departs.get(p, mark.after) < mark.after}


def log(identity: str = "id", **epochs: int) -> LogState:
    leaders = {TopicPartition("t", int(name[1:])): epoch for name, epoch in epochs.items()}
    at = {P0: 50, P1: 50}
    return LogState({"t": identity}, {P0: 0, P1: 0}, at, at, leaders)


@pytest.mark.parametrize(
    ("newest", "now", "asked"),
    [
        (NEWEST, log(p0=3, p1=3), []),
        (NEWEST, log(p0=4, p1=3), [P0]),
        (NEWEST, log(p0=4, p1=4), [P0, P1]),
        (NEWEST, log(p0=2, p1=3), [P0]),
        (NEWEST, log(), [P0, P1]),
        (NEWEST, log("other", p0=9, p1=9), []),
        (NEWEST, LogState({}, {}, {}), []),
        (None, log(p0=9, p1=9), []),
    ],
    ids=[
        "the leader that took the last record leads",
        "one has another leader",
        "both have",
        "an epoch that is less",
        "the brokers do not say who leads",
        "another topic, which its id tells",
        "no topic",
        "no stamp",
    ],
)
def test_who_is_asked_at_the_start(newest: Stamp | None, now: LogState, asked: list[TopicPartition]) -> None:
    kafka: Any = Kafka(p1=5)
    found = log_departures(newest, now, kafka)
    assert [sorted(each) for each in kafka.asked] == ([asked] if asked else [])
    assert found == ({P1: 5} if P1 in asked else {})


def test_a_mark_of_another_position_is_not_asked_about() -> None:
    kafka: Any = Kafka(p0=0)
    moved = Stamp(
        "s", "accept", 0, 1, "c", start={}, position={P0: 4}, topics={"t": "id"}, last_reads=NEWEST.last_reads
    )
    assert log_departures(moved, log(), kafka) == {}
    assert kafka.asked == []


def following(kafka: Kafka, newest: Stamp | None = NEWEST) -> Continuity:
    stream: Any = SimpleNamespace(
        log=log(p0=3, p1=3), spec=SimpleNamespace(stream="s"), anchor=SimpleNamespace(newest=newest)
    )
    said: Any = kafka
    return Continuity(stream, said)


def ends(**epochs: int) -> LogEnds:
    at = {P0: 50, P1: 50}
    return LogEnds(at, at, {TopicPartition("t", int(name[1:])): epoch for name, epoch in epochs.items()})


def read(*tallies: tuple[int, int, int | None]) -> TaskResults:
    return TaskResults({}, [Tally("t", partition, after=at, leader_epoch=e) for partition, at, e in tallies])


def test_nobody_is_asked_while_the_leaders_stay() -> None:
    kafka = Kafka(p0=0, p1=0)
    each = following(kafka)
    for _ in range(3):
        each.check(ends(p0=3, p1=3), read((0, 30, 3), (1, 30, 3)))
    assert kafka.asked == []


def test_a_leader_that_has_all_is_taken_note_of() -> None:
    kafka = Kafka()
    each = following(kafka)
    each.check(ends(p0=5, p1=3), read((0, 20, 3), (0, 30, 5), (1, 30, 3)))
    assert kafka.asked == [{P0: LastRead(10, 10, 3)}, {P0: LastRead(20, 20, 3)}, {P0: LastRead(30, 30, 5)}]
    each.check(ends(p0=5, p1=3), read((0, 40, 5)))
    assert len(kafka.asked) == 3


def test_a_log_that_was_cut_before_the_position_stops_the_stream() -> None:
    each = following(Kafka(p1=16))
    with pytest.raises(TopicRecreatedError, match=r"topic t was cut: t-1 \[16, 20\)"):
        each.check(ends(p0=3, p1=5), read((1, 30, 5)))
    with pytest.raises(TopicRecreatedError):
        each.check(ends(p0=3, p1=5), read())


def test_a_log_that_was_cut_between_two_pieces_is_read_again() -> None:
    each = following(Kafka(p0=25))
    with pytest.raises(KafkaUnavailableError, match=r"topic t, partition 0: its log was cut at offset 25 while it was"):
        each.check(ends(p0=5, p1=3), read((0, 30, 3), (0, 40, 5)))


def test_the_first_batch_has_nothing_before_it() -> None:
    kafka = Kafka()
    following(kafka, None).check(ends(p0=5, p1=5), read((0, 30, 5)))
    assert kafka.asked == [{P0: LastRead(30, 30, 5)}]


def test_brokers_that_say_no_epochs_are_not_asked() -> None:
    kafka = Kafka()
    following(kafka, Stamp("s", "batch", 0, 1, "c", start={}, position={P0: 10})).check(ends(), read((0, 30, None)))
    assert kafka.asked == []


def test_the_marks_of_a_batch() -> None:
    before = {P0: LastRead(10, 8, 3), P1: LastRead(20, 17, 3)}
    results = read((0, 30, 5), (0, 25, 4), (0, 28, None))
    assert results.marks({P0: 33, P1: 24}, before) == {P0: LastRead(33, 30, 5), P1: LastRead(24, 17, 3)}
    # Of what is not in the stamp any more nothing is said.
    assert results.marks({P1: 20}, before) == {P1: LastRead(20, 17, 3)}
    assert read((0, 30, -1)).marks({P0: 30}, {}) == {}
