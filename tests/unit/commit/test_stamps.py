from __future__ import annotations

from dataclasses import MISSING, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.commit.event_times import EventCounts, EventTimes, PartitionTime
from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.commit.retired_topics import Retired
from jobs.commit.stamp_fields import Counts, Decision, LastRead, PartitionCounts
from jobs.commit.stamps import Stamp, property_key
from tests.unit.commit.strategies import stamps

ONE = TopicPartition("payments", 0)
NOW = 1_760_000_000_000
STAMP = Stamp(
    "payments", "batch", 7, 3, "0123456789ab", start={ONE: 10}, position={ONE: 25}, rows={"a.t": 14, "a.d": 1}
)


@given(stamps())
def test_json_round_trip(stamp: Stamp) -> None:
    assert Stamp.from_json(stamp.to_json()) == stamp


def test_every_field_survives_json() -> None:
    """A value in each field, unlike its default: a field that is not encoded comes back as the default."""
    stamp = Stamp(
        stream="payments",
        kind="accept",
        batch=7,
        epoch=3,
        config="0123456789ab",
        start={ONE: 10},
        position={ONE: 25},
        ends={ONE: 90},
        valid_through_ms=NOW,
        rows={"a.t": 14, "a.d": 1},
        failed=1,
        counts=Counts(15, 11, 1, 2, 1),
        totals=Counts(150, 110, 10, 20, 10),
        targets={"a.t": "0" * 36, "a.d": "1" * 36},
        topics={"payments": "A" * 22},
        note="tester: the topic was recreated",
        generation="fedcba987654",
        sequence=41,
        parts={ONE: PartitionCounts(10, Counts(15, 11, 1, 2, 1))},
        decision=Decision("reset", again={ONE: OffsetRange(3, 10)}),
        moved=40,
        last_reads={ONE: LastRead(25, 24, 5)},
        retired={"refunds": Retired("B" * 22, NOW - 1_000, {0: 12})},
        schema_id=2,
        names={4: ("amount_cents",)},
        schemas={"a.t": 3},
        further_names={"a.t": {5: ("customer_name",)}},
        decoded_of={"a.t": "89abcdef"},
        unknown_ids=(17, "0" * 32),
        decoded="01234567",
        branch="ingest",
        event_time=EventTimes("at", 5, 3, {ONE: PartitionTime(7, 9)}, 1),
        published={"ingest": 39},
        landed={ONE: 20},
        before_ms=NOW - 2_000,
        batch_ms=NOW - 3_000,
        parked={"a.t": NOW - 4_000},
        held={"a.t": 6},
        coordinator=("2" * 36, 38),
        mirror={"through": 38},
    )
    for each in fields(Stamp):
        if each.name == "sequences":
            continue  # A property of its own, see `stamp_properties`.
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        assert getattr(stamp, each.name) != default, f"{each.name} has its default, which shows nothing"
    assert Stamp.from_json(stamp.to_json()) == stamp


def test_a_stamp_of_48_partitions_is_small() -> None:
    def at(first: int) -> dict[TopicPartition, int]:
        return {TopicPartition("payments", n): first + 1_013 * n for n in range(48)}

    stamp = replace(
        STAMP,
        start=at(12_345_678),
        position=at(12_365_678),
        counts=Counts(1_000_000, 990_000, 9_000, 1_000, 0),
        totals=Counts(10**9, 10**9, 10**7, 10**6, 0),
        valid_through_ms=1_760_000_000_000,
        targets={"orders.payments": "0" * 36, "orders.payments_dead": "1" * 36},
        topics={"payments": "A" * 22},
    )
    without = len(stamp.to_json())
    # Beside where each partition stands, the digits of what was counted there: 9 bytes where all of it landed.
    landed = {partition: PartitionCounts(at, Counts(20_000, 20_000)) for partition, at in stamp.start.items()}
    assert len(replace(stamp, parts=landed).to_json()) < without + 48 * 6 + 30
    mixed = {partition: PartitionCounts(at, Counts(20_000, 19_800, 180, 20)) for partition, at in stamp.start.items()}
    assert len(replace(stamp, parts=mixed).to_json()) < without + 48 * 15 + 30
    few = {TopicPartition("payments", n): PartitionCounts(1, Counts(5, 5)) for n in (900, 4_000)}
    assert len(replace(stamp, parts=few).to_json()) < without + 100
    assert len(stamp.to_json()) < 1_500
    # The epoch of the last record read, where nothing but records stands before the position.
    marks = {partition: LastRead(at, at, 12) for partition, at in stamp.position.items()}
    assert len(replace(stamp, last_reads=marks).to_json()) < without + 48 * 3 + 30
    assert len(replace(stamp, start=at(345_678), position=at(365_678)).to_json()) < 1_200
    # Of event times what lies between the partitions, with a few hundred bytes beside.
    each = {p: PartitionTime(NOW - 100 * p.partition, NOW) for p in stamp.position}
    held = EventCounts(NOW - 5_000, NOW, 3, 0, (5, 2, 1, 0, 0), 3_600_000, 0, {NOW // 3_600_000 * 3_600_000: 8})
    times = EventTimes("at", NOW - 600_000, NOW - 660_000, each, NOW - 10**9, held)
    assert len(replace(stamp, event_time=times).to_json()) < without + 48 * 6 + 310
    at_the_end = len(stamp.to_json())
    assert len(replace(stamp, ends=at(13_000_000)).to_json()) < at_the_end + 48 * 16


def test_a_claim_and_an_answer_keep_the_watermark_and_nothing_of_the_batch() -> None:
    times = EventTimes("at", 5, 3, {ONE: PartitionTime(7, 9)}, 1, EventCounts(1, 7, late=(1, 0, 0, 0, 0)))
    stamp = replace(STAMP, event_time=times)
    for later in (stamp.claimed(9), stamp.decided(Decision("reset"))):
        assert later.event_time == EventTimes("at", 5, 3, {ONE: PartitionTime(7, 9)}, 1)


def test_a_stamp_without_event_times_is_read() -> None:
    """As earlier versions wrote them, and as streams without an event time still do."""
    assert "event" not in STAMP.to_json()
    old = (
        '{"v":1,"stream":"payments","kind":"batch","batch":7,"epoch":3,"config":"0123456789ab",'
        '"at":{"payments":[[10,25]]},"rows":{"a.t":14,"a.d":1}}'
    )
    assert Stamp.from_json(old) == STAMP


def test_a_claim_keeps_what_tells_whether_the_batch_before_is_whole() -> None:
    claim = replace(STAMP, parts={ONE: PartitionCounts(10, Counts(15, 14, 1))}, decision=Decision("reset")).claimed(9)
    assert (claim.parts, claim.decision) == ({}, None)
    assert (claim.kind, claim.epoch, claim.counts, claim.note) == ("claim", 9, Counts(), None)
    assert (claim.start, claim.position, claim.rows, claim.config) == (
        STAMP.start,
        STAMP.position,
        STAMP.rows,
        STAMP.config,
    )
    assert claim.totals == STAMP.totals


def test_a_recovered_batch_differs_by_its_epoch_only() -> None:
    assert STAMP.under(9) == replace(STAMP, epoch=9)


def test_a_mark_counts_at_its_own_position_only() -> None:
    marked = replace(STAMP, last_reads={ONE: LastRead(25, 24, 3)})
    assert Stamp.from_json(marked.to_json()).last_reads == {ONE: LastRead(25, 24, 3)}
    for kept in (marked.claimed(9), marked.under(9), marked.decided(Decision("reset"))):
        assert Stamp.from_json(kept.to_json()).last_reads == marked.last_reads
    for moved in ({ONE: 20}, {ONE: 30}, {}):
        assert Stamp.from_json(replace(marked, position=moved).to_json()).last_reads == {}


def test_topics_that_the_anchor_does_not_know_are_forgotten() -> None:
    old = TopicPartition("old", 0)
    stamp = replace(STAMP, start={ONE: 1, old: 2}, position={ONE: 3, old: 4}, ends={old: 9})
    anchored = replace(STAMP, start={ONE: 1}, position={}, topics={})
    assert stamp.known_to(anchored) == replace(STAMP, start={ONE: 1}, position={ONE: 3}, ends={})
    assert stamp.known_to(None) == stamp


def test_counts_add_up() -> None:
    assert Counts(10, 5, 3, 1, 1) + Counts(1, 1, 0, 0, 0) == Counts(11, 6, 3, 1, 1)
    assert Counts(11, 6, 3, 1, 1) - Counts(1, 1, 0, 0, 0) == Counts(10, 5, 3, 1, 1)


def test_a_stamp_of_an_earlier_version_says_nothing_per_partition() -> None:
    text = '{"v":1,"stream":"s","kind":"batch","batch":1,"epoch":1,"config":"c","at":{"t":[[5,9]]},"rows":{"a.t":4}}'
    stamp = Stamp.from_json(text)
    assert (stamp.parts, stamp.decision, stamp.rows) == ({}, None, {"a.t": 4})
    assert stamp.to_json() == text
    assert stamp.last_reads == {}


@pytest.mark.parametrize("text", ['{"v": 99}', "{}", "no json"])
def test_another_format_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"format|JSON"):
        Stamp.from_json(text)


@given(st.from_regex(r"[a-z][a-z0-9_-]{0,62}", fullmatch=True), st.from_regex(r"[a-z][a-z0-9_-]{0,62}", fullmatch=True))
def test_each_stream_has_a_property_of_its_own(one: str, other: str) -> None:
    assert (property_key(one) == property_key(other)) == (one == other)
