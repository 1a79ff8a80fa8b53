"""Topics that are gone, and come back: what is remembered of them, and where they go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from jobs.tables.commit.history.stamp_history import _compared
from jobs.tables.commit.recovery.accept import lost_offsets, recreated_topic
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.recovery.starting_point import starting_point
from jobs.tables.commit.stamp import retired_topics as module
from jobs.tables.commit.stamp.errors import NothingToAcceptError, OffsetsLostError, TopicRecreatedError
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.retired_topics import (
    KEPT_MS,
    Retired,
    remembered_topics,
    returned_topics,
)
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.commit.stamp.target_positions import restart_positions, target_positions

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
GONE = Retired("id-a", 1_000, {0: 10, 1: 20})
ANCHOR = Stamp("s", "batch", 0, 1, "c", start={B0: 0}, position={B0: 3}, topics={"b": "id-b"}, retired={"a": GONE})

EMPTY = new_table_metadata(Schema(), UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t")


def begin(log: LogState, anchor: Stamp = ANCHOR) -> dict[TopicPartition, int]:
    return starting_point("s", dict(anchor.position), anchor, log, {}, lambda topic: True).offsets


def test_the_same_topic_goes_on_where_it_stood() -> None:
    log = LogState({"a": "id-a", "b": "id-b"}, {A0: 0, A1: 0, B0: 0}, {A0: 15, A1: 20, B0: 3})
    assert begin(log) == {A0: 10, A1: 20, B0: 3}
    more = replace(log, earliest={**log.earliest, TopicPartition("a", 2): 4})
    assert begin(more)[TopicPartition("a", 2)] == 4, "a partition that was added meanwhile, from its first record"


def test_it_goes_on_there_also_after_a_week_without_a_batch() -> None:
    now = 1_001 + KEPT_MS
    log = LogState({"a": "id-a", "b": "id-b"}, {A0: 0, A1: 0, B0: 0}, {A0: 15, A1: 20, B0: 3}, seen_ms=now)
    assert remembered_topics(ANCHOR.retired, {}, (), now) == {}, "a batch would have forgotten it"
    assert begin(log) == {A0: 10, A1: 20, B0: 3}


def test_another_topic_of_its_name_is_new() -> None:
    log = LogState({"a": "other", "b": "id-b"}, {A0: 0, A1: 2, B0: 0}, {A0: 15, A1: 20, B0: 3})
    assert begin(log) == {A0: 0, A1: 2, B0: 3}
    assert begin(LogState({"b": "id-b"}, {B0: 0}, {B0: 3})) == {B0: 3}


def test_what_retention_removed_meanwhile_is_told() -> None:
    log = LogState({"a": "id-a", "b": "id-b"}, {A0: 12, A1: 0, B0: 0}, {A0: 15, A1: 20, B0: 3})
    with pytest.raises(OffsetsLostError, match=r"topic a, partition 0, offsets \[10, 12\)"):
        begin(log)


def test_a_stamp_of_an_earlier_version_remembers_none() -> None:
    text = replace(ANCHOR, retired={}).to_json()
    assert "retired" not in text
    assert Stamp.from_json(text).retired == {}
    assert Stamp.from_json(ANCHOR.to_json()) == ANCHOR
    assert Stamp.from_json(ANCHOR.claimed(7).to_json()).retired == {"a": GONE}


def test_a_topic_that_is_there_or_was_gone_for_a_week_is_forgotten() -> None:
    before = {"a": GONE}
    assert remembered_topics(before, {}, {"b"}, 2_000) == before
    assert remembered_topics(before, {}, {"a", "b"}, 2_000) == {}
    assert remembered_topics(before, {}, (), 1_000 + KEPT_MS) == before
    assert remembered_topics(before, {}, (), 1_001 + KEPT_MS) == {}
    later = Retired("id-a", 5_000, {0: 30})
    assert remembered_topics(before, {"a": later}, (), 5_000) == {"a": later}


def dead_letters(anchor: Stamp) -> dict[str, Stamp | None]:
    """The stamps of both tables; the dead letters have never heard of the topic that is back."""
    return {"sink": anchor, "dead": replace(anchor, retired={}, topics={})}


def test_lost_records_of_a_topic_that_is_back_can_be_passed() -> None:
    log = LogState({"a": "id-a", "b": "id-b"}, {A0: 12, A1: 0, B0: 0}, {A0: 15, A1: 20, B0: 3})
    with pytest.raises(NothingToAcceptError):
        lost_offsets(dead_letters(ANCHOR), "sink", log.earliest, {"a": "other", "b": "id-b"})
    new = lost_offsets(dead_letters(ANCHOR), "sink", log.earliest, log.topics)
    assert new.keys() == {"sink"}
    anchor = new["sink"]
    assert anchor.decision == Decision("lost_offsets", passed={A0: OffsetRange(10, 12)})
    assert (anchor.topics, anchor.retired) == (log.topics, {})
    assert anchor.position == {A0: 12, A1: 20, B0: 3}
    after = {**dead_letters(ANCHOR), **new}
    assert half_committed(after, "sink") is None
    assert target_positions(after, "sink")["dead"] == anchor.position
    assert begin(log, anchor) == {A0: 12, A1: 20, B0: 3}


def test_a_topic_that_is_back_with_a_log_that_was_cut_goes_on_at_its_end() -> None:
    log = LogState({"a": "id-a", "b": "id-b"}, {A0: 0, A1: 0, B0: 0}, {A0: 4, A1: 20, B0: 3})
    with pytest.raises(TopicRecreatedError, match="--recreated-topic a"):
        begin(log)
    new = recreated_topic(dead_letters(ANCHOR), "sink", "a", "id-a", log.latest)
    anchor = new["sink"]
    assert anchor.decision == Decision("cut_topic", again={A0: OffsetRange(4, 10)})
    assert (anchor.topics, anchor.retired) == (log.topics, {})
    after = {**dead_letters(ANCHOR), **new}
    assert half_committed(after, "sink") is None
    assert restart_positions(target_positions(after, "sink")) == {A0: 4, A1: 20, B0: 3}
    assert begin(log, anchor) == {A0: 4, A1: 20, B0: 3}
    # One that goes on where it stood is no question.
    whole = replace(log, latest={A0: 10, A1: 20, B0: 3})
    with pytest.raises(NothingToAcceptError):
        recreated_topic(dead_letters(ANCHOR), "sink", "a", "id-a", whole.latest)


def test_an_answer_about_another_topic_leaves_what_is_remembered() -> None:
    new = recreated_topic(dead_letters(ANCHOR), "sink", "b", "other", {B0: 3})
    assert new["sink"].retired == {"a": GONE}
    assert new["sink"].topics == {"b": "other"}


def rolled_back(ancestor: Stamp | None, newest: Stamp) -> Stamp:
    """The anchor's stamp after `--rollback reland`, as the table's history is read."""
    before = replace(ancestor, sequence=2) if ancestor else None
    past = _compared(EMPTY, "s", replace(newest, sequence=5, moved=5), before, [])
    assert past.rolled_back
    return rollback({"sink": past}, "sink", "reland", "c")["sink"]


def test_a_rollback_to_where_a_topic_was_gone_that_is_back_lands_nothing_of_it_twice() -> None:
    topics = {"a": "id-a", "b": "id-b"}
    stood, reached = {A0: 10, A1: 20, B0: 3}, {A0: 15, A1: 20, B0: 7}
    newest = replace(ANCHOR, start=stood, position=reached, topics=topics, retired={})
    again = rolled_back(ANCHOR, newest)
    assert again.position == stood
    assert again.decision is not None
    assert again.decision.removed == {A0: OffsetRange(10, 15), B0: OffsetRange(3, 7)}
    other = rolled_back(ANCHOR, replace(newest, topics={"a": "other", "b": "id-b"}))
    assert other.position == {A0: 0, A1: 0, B0: 3}, "what was landed of the topic before it is not this one's"


@pytest.mark.parametrize(
    ("ancestor", "goes_on"),
    [
        (replace(ANCHOR, position={A0: 4, B0: 3}, topics={"a": "id-a", "b": "id-b"}, retired={}), {A0: 4, A1: 0}),
        (replace(ANCHOR, position={A0: 4, B0: 3}, topics={"a": "other", "b": "id-b"}, retired={}), {A0: 0, A1: 0}),
        (ANCHOR, {A0: 10, A1: 20}),
        (None, {A0: 0, A1: 0}),
    ],
)
def test_a_rollback_to_before_a_topic_was_gone_lands_it_again_if_it_comes_back(
    ancestor: Stamp | None, goes_on: dict[TopicPartition, int]
) -> None:
    again = rolled_back(ancestor, replace(ANCHOR, position={B0: 7}))
    assert returned_topics(again.retired, {"a": "id-a", "b": "id-b"}) == goes_on


topics = st.text("abc", min_size=1, max_size=2)
retirees = st.builds(
    Retired,
    st.sampled_from(["x", "y"]),
    st.integers(0, 5),
    st.dictionaries(st.integers(0, 40), st.integers(0, 9), min_size=1),
)
many = st.dictionaries(topics, retirees)


@given(many, many, st.sets(topics))
def test_what_is_kept_is_bounded_and_the_newest(
    before: dict[str, Retired], gone: dict[str, Retired], there: set[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_PARTITIONS", 5)
        kept = remembered_topics(before, gone, there, 5)
    wanted = {topic: each for topic, each in {**before, **gone}.items() if topic not in there}
    assert kept.items() <= wanted.items()
    newest = max((each.at_ms for each in wanted.values()), default=0)
    assert {topic for topic, each in wanted.items() if each.at_ms == newest} <= kept.keys()
    older = [each for each in kept.values() if each.at_ms < newest]
    assert not older or sum(len(each.positions) for each in kept.values()) <= 5
    left = wanted.keys() - kept.keys()
    assert all(wanted[topic].at_ms <= each.at_ms for topic in left for each in kept.values())
    stamp = replace(ANCHOR, retired=kept)
    assert Stamp.from_json(stamp.to_json()) == stamp


@given(many, st.dictionaries(topics, st.sampled_from(["x", "y", "z"])))
def test_only_the_same_topics_come_back(before: dict[str, Retired], there: dict[str, str]) -> None:
    found = returned_topics(before, there)
    same = {topic for topic, each in before.items() if there.get(topic) == each.identity}
    assert found == {TopicPartition(topic, n): at for topic in same for n, at in before[topic].positions.items()}
