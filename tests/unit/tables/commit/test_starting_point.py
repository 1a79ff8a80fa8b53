from __future__ import annotations

from dataclasses import replace

import pytest

from jobs.tables.commit.recovery.starting_point import StartingPoint, starting_point, unread
from jobs.tables.commit.stamp.errors import OffsetsLostError, TopicLostError, TopicRecreatedError
from jobs.tables.commit.stamp.log_state import NOWHERE, LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, Positions, TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ANCHOR = Stamp("s", "batch", 0, 1, "c", start={A0: 0}, position={A0: 10}, topics={"a": "id-a"})
LOG = LogState({"a": "id-a"}, {A0: 2}, {A0: 15})


def begin(
    known: dict[TopicPartition, int],
    anchor: Stamp | None,
    log: LogState,
    subscribed: str = "ab",
    reached: Positions = NOWHERE,
) -> StartingPoint:
    return starting_point("s", known, anchor, log, {A0: 7}, lambda topic: topic in subscribed, reached)


def test_without_any_stamp_the_specs_start_decides() -> None:
    assert begin({}, None, LOG).offsets == {A0: 7}


@pytest.mark.parametrize("at", [2, 10, 15])
def test_it_goes_on_where_it_stands(at: int) -> None:
    assert begin({A0: at}, ANCHOR, LOG) == StartingPoint({A0: at})


def test_a_new_topic_and_a_new_partition_begin_at_their_first_record() -> None:
    log = LogState({"a": "id-a", "b": "id-b"}, {A0: 0, A1: 5, B0: 3}, {A0: 15, A1: 9, B0: 4})
    assert begin({A0: 10}, ANCHOR, log).offsets == {A0: 10, A1: 5, B0: 3}


def test_a_topic_that_was_read_to_its_end_and_is_gone_is_retired() -> None:
    log = LogState({"b": "id-b"}, {B0: 0}, {B0: 1})
    assert begin({A0: 10}, ANCHOR, log) == StartingPoint({B0: 0}, retired=("a",))
    read_to_the_end = replace(ANCHOR, ends={A0: 10})
    assert begin({A0: 10}, read_to_the_end, log).retired == ("a",)


def test_a_topic_that_the_spec_no_longer_names_is_dropped_not_lost() -> None:
    anchor = replace(ANCHOR, ends={A0: 99})
    log = LogState({"b": "id-b"}, {B0: 0}, {B0: 1})
    point = begin({A0: 10}, anchor, log, subscribed="b")
    assert point == StartingPoint({B0: 0}, dropped=("a",), kept={A0: 10})


def test_a_topic_that_is_gone_before_its_end_stops() -> None:
    anchor = replace(ANCHOR, ends={A0: 12})
    with pytest.raises(TopicLostError, match=r"stream s: topic a was deleted.* a-0 \[10, 12\) were not read") as stop:
        begin({A0: 10}, anchor, LogState({}, {}, {}))
    assert "--lost-topic a" in str(stop.value)


def test_a_topic_that_is_gone_while_one_table_lacks_what_another_has_stops() -> None:
    with pytest.raises(
        TopicLostError, match=r"topic a was deleted.* a-0 \[4, 10\) were not landed in every table"
    ) as stop:
        begin({A0: 4}, ANCHOR, LogState({}, {}, {}), reached={A0: 10})
    assert "--lost-topic a" in str(stop.value)
    assert begin({A0: 10}, ANCHOR, LogState({}, {}, {}), reached={A0: 10}).retired == ("a",)


def test_a_recreated_topic_stops_by_its_id() -> None:
    log = LogState({"a": "other"}, {A0: 0}, {A0: 15})
    with pytest.raises(TopicRecreatedError, match=r"topic a was deleted and created again \(id id-a became other\)"):
        begin({A0: 10}, ANCHOR, log)


def test_a_log_that_ends_before_the_position_stops() -> None:
    with pytest.raises(TopicRecreatedError, match="partition 0 ends at 9, before the stream's position 10"):
        begin({A0: 10}, ANCHOR, LogState({"a": "id-a"}, {A0: 0}, {A0: 9}))


def test_a_log_that_is_another_one_stops_however_far_it_goes() -> None:
    known = {A0: 10, A1: 30}
    anchor, log = replace(ANCHOR, position=known), LogState({"a": "id-a"}, {A0: 0, A1: 0}, {A0: 90, A1: 90})
    begun = starting_point("s", known, anchor, log, {}, lambda topic: True, NOWHERE, {})
    assert begun.offsets == known
    with pytest.raises(TopicRecreatedError, match=r"the log of topic a was cut: a-0 \[0, 10\), a-1 \[20, 30\)") as stop:
        starting_point("s", known, anchor, log, {}, lambda topic: True, NOWHERE, {A0: 0, A1: 20})
    assert "frazil accept s --recreated-topic a" in str(stop.value)


def test_offsets_lost_to_retention_stop_and_name_each_range() -> None:
    log = LogState({"a": "id-a"}, {A0: 11, A1: 5}, {A0: 15, A1: 6})
    with pytest.raises(
        OffsetsLostError, match=r"partition 0, offsets \[10, 11\); topic a, partition 1, offsets \[3, 5\)"
    ):
        begin({A0: 10, A1: 3}, ANCHOR, log)


def test_unread_is_what_lies_between_the_position_and_the_known_end() -> None:
    anchor = replace(ANCHOR, ends={A0: 12, A1: 3, B0: 99})
    assert unread("a", {A0: 10, A1: 3, B0: 0}, anchor) == {A0: OffsetRange(10, 12)}
    assert unread("a", {A0: 10, A1: 3}, anchor, {A0: 11, A1: 5}) == {A0: OffsetRange(10, 12), A1: OffsetRange(3, 5)}
