"""Topics without an id: what is concluded from ids, from epochs, and what is refused where there is neither."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Uuid

from jobs.base.errors import FrazilError
from jobs.streaming.driver.context.continuity import log_departures
from jobs.tables.commit.recovery.accept import recreated_topic
from jobs.tables.commit.stamp.errors import NothingToAcceptError, TopicRecreatedError
from jobs.tables.commit.stamp.log_state import (
    NO_ID,
    LogState,
    another_topic,
    check_identity,
    has_id,
    refuse_unidentifiable,
    without_id,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Decision, LastRead
from jobs.tables.commit.stamp.stamps import Stamp

P0 = TopicPartition("t", 0)
AT = {P0: 30}


def test_what_the_client_shows_for_no_id() -> None:
    assert str(Uuid(0, 0)) == NO_ID
    assert [has_id(each) for each in (NO_ID, "", None, str(Uuid(1, 2)))] == [False, False, False, True]
    assert without_id({"b": NO_ID, "a": "", "c": "id"}) == ("a", "b")


@pytest.mark.parametrize(
    ("before", "now", "another"),
    [
        ("one", "one", False),
        ("one", "other", True),
        (NO_ID, NO_ID, False),
        (NO_ID, "one", False),
        ("one", NO_ID, False),
        ("one", None, False),
        (None, "one", False),
    ],
    ids=["the same", "another", "never an id", "brokers that were upgraded", "brokers without ids", "gone", "new"],
)
def test_ids_say_nothing_where_one_is_not_known(before: str | None, now: str | None, another: bool) -> None:
    assert another_topic(before, now) is another
    known = {"t": before} if before is not None else {}
    there = {"t": now} if now is not None else {}
    if another:
        with pytest.raises(TopicRecreatedError, match="topic t was deleted and created again"):
            check_identity("s", known, there)
    else:
        check_identity("s", known, there)


@pytest.mark.parametrize(("before", "now"), [(NO_ID, NO_ID), (NO_ID, "one"), ("one", NO_ID), ("one", "one")])
def test_the_epochs_are_asked_whatever_the_ids_say(before: str, now: str) -> None:
    class Kafka:
        def departures(self, marks: Any) -> dict[TopicPartition, int]:
            return dict.fromkeys(marks, 0)

    kafka: Any = Kafka()
    newest = Stamp(
        "s", "batch", 0, 1, "c", start={}, position=AT, topics={"t": before}, last_reads={P0: LastRead(30, 30, 4)}
    )
    assert log_departures(newest, LogState({"t": now}, {P0: 0}, {P0: 50}, {P0: 50}, {P0: 0}), kafka) == {P0: 0}


@pytest.mark.parametrize(
    ("identity", "epochs", "before", "refused"),
    [
        ("one", {}, (), False),
        ("one", {P0: 0}, (), False),
        (NO_ID, {P0: 0}, (), False),
        (NO_ID, {}, (), True),
        (NO_ID, {TopicPartition("other", 0): 3}, (), True),
        (NO_ID, {}, ("t",), False),
    ],
    ids=["id", "both", "epochs", "neither", "epochs of another topic", "neither, and begun by an earlier release"],
)
def test_neither_id_nor_epochs_is_refused(identity: str, epochs: dict, before: tuple[str, ...], refused: bool) -> None:
    log = LogState({"t": identity}, {P0: 0}, {P0: 9}, {P0: 9}, epochs)
    if not refused:
        refuse_unidentifiable("s", log, before)
        return
    with pytest.raises(FrazilError, match=r"stream s: the brokers give topic t no id.*no leader epochs") as told:
        refuse_unidentifiable("s", log, before)
    assert "Kafka 2.1" in str(told.value)


def test_a_topic_without_an_id_that_is_another_is_read_from_its_beginning() -> None:
    """A recreated topic's first records are of the epoch of the former one's: where it departs says nothing."""
    newest = Stamp("s", "batch", 0, 1, "c", start=AT, position=AT, topics={"t": NO_ID})
    for latest, departures in (({P0: 20}, {P0: 20}), ({P0: 20}, {}), ({P0: 50}, {P0: 7})):
        new = recreated_topic({"a.t": newest}, "a.t", "t", NO_ID, latest, departures)["a.t"]
        assert (new.position, new.decision) == ({}, Decision("recreated_topic", again={P0: OffsetRange(0, 30)}))
    with pytest.raises(NothingToAcceptError):
        recreated_topic({"a.t": newest}, "a.t", "t", NO_ID, {P0: 50}, {})
    with pytest.raises(NothingToAcceptError):
        recreated_topic({"a.t": replace(newest, topics={"t": "one"})}, "a.t", "t", NO_ID, {P0: 50}, {})
