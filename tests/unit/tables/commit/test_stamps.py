from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.name_matching import NAME_MAPPING, Aliases, aliases_of
from jobs.records.schema.parser import parse_schema
from jobs.tables.commit.stamp.decided_names import (
    MOST_CHARACTERS,
    DecidedNames,
    decided_names,
    decided_properties,
    pack_names,
    unpack_names,
)
from jobs.tables.commit.stamp.event_times import (
    MOST_PERIODS,
    NO_EVENTS,
    EventCounts,
    EventTimes,
    PartitionTime,
    pack_event_times,
    unpack_event_times,
)
from jobs.tables.commit.stamp.offsets import (
    Gap,
    OffsetRange,
    TopicPartition,
    describe_ranges,
    from_spark_offsets,
    pointwise_max,
    spark_offsets,
)
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import (
    Counts,
    Decision,
    LastRead,
    PartitionCounts,
)
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from tests.unit.tables.commit.strategies import (
    event_counts,
    event_times,
    positions,
    stamps,
)

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


HOUR = 3_600_000


@given(event_times)
def test_what_is_packed_is_unpacked(times: EventTimes) -> None:
    assert unpack_event_times(pack_event_times(times)) == times


@given(event_counts, event_counts, event_counts)
def test_parts_of_a_batch_add_up_in_any_order(one: EventCounts, two: EventCounts, three: EventCounts) -> None:
    assert (one + two) + three == one + (two + three)
    assert one + two == two + one
    assert one + NO_EVENTS == one


@given(st.dictionaries(st.integers(0, 10**4).map(lambda n: n * HOUR), st.integers(1, 10**6), max_size=200))
def test_hours_of_late_rows_are_named_up_to_a_number_and_none_is_lost(periods: dict[int, int]) -> None:
    bounded = EventCounts(periods=periods, others=3).bounded()
    assert len(bounded.periods) <= MOST_PERIODS
    assert sum(bounded.periods.values()) + bounded.others == sum(periods.values()) + 3
    left = [rows for start, rows in periods.items() if start not in bounded.periods]
    assert not left or max(left) <= min(bounded.periods.values())


def test_a_topic_that_is_another_one_is_forgotten_and_the_watermark_stays() -> None:
    old, other = TopicPartition("a", 0), TopicPartition("b", 0)
    times = EventTimes("at", 50, 40, {old: PartitionTime(60, 1), other: PartitionTime(None, 2)}, 3)
    assert times.without_topic("a") == EventTimes("at", 50, 40, {other: PartitionTime(None, 2)}, 3)


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@given(positions)
def test_spark_offsets_round_trip(at: dict[TopicPartition, int]) -> None:
    assert from_spark_offsets(spark_offsets(at)) == at


def test_spark_offsets_are_in_the_form_that_spark_reads() -> None:
    assert json.loads(spark_offsets({P1: 7, P0: 3})) == {"t": {"0": 3, "1": 7}}


@given(st.lists(positions, max_size=4))
def test_pointwise_max_is_the_least_upper_bound(many: list[dict[TopicPartition, int]]) -> None:
    greatest = pointwise_max(many)
    assert set(greatest) == {partition for each in many for partition in each}
    assert all(greatest[p] == max(each[p] for each in many if p in each) for p in greatest)


def test_words() -> None:
    assert str(P0) == "t-0"
    assert str(Gap(P1, OffsetRange(3, 9))) == "topic t, partition 1, offsets [3, 9)"
    many = {TopicPartition("t", n): OffsetRange(n, n + 1) for n in range(7)}
    assert describe_ranges({P1: OffsetRange(3, 9), P0: OffsetRange(1, 2)}) == "t-0 [1, 2), t-1 [3, 9)"
    assert describe_ranges(many).endswith("t-4 [4, 5) and 2 more")


SCHEMA = iceberg_schema(parse_schema("id string, s struct<a int, b int>, l list<struct<x int>>, m map<string, int>"))
IDS = sorted(SCHEMA.field_ids)
names = st.lists(st.sampled_from(["id", "a", "b", "x", "s", "other", "der Name", "é", "long " * 30]), max_size=3)


def entry(number: int, of: list[str], inner: list[Any]) -> dict[str, Any]:
    return {"field-id": number, "names": of, "fields": inner}


flat = st.lists(st.builds(entry, st.sampled_from(IDS), names, st.just([])), max_size=8)
mappings = st.one_of(
    st.none(),
    flat.map(json.dumps),
    st.builds(lambda outer, inner: json.dumps([entry(2, outer, inner)]), names, flat),
)


def matched(properties: Mapping[str, str]) -> Aliases:
    return aliases_of(SCHEMA, properties, "n.t")


def of(mapping: str | None) -> dict[str, str]:
    return {"other": "property"} | ({} if mapping is None else {NAME_MAPPING: mapping})


def carried(mapping: str | None) -> DecidedNames:
    """As a stamp's JSON brings it to the second run."""
    text = json.dumps(pack_names(decided_names(SCHEMA, mapping)))
    assert len(text) <= 2 * MOST_CHARACTERS
    found = unpack_names(json.loads(text))
    assert found is not None
    return found


@given(mappings, mappings, st.lists(mappings, max_size=3))
def test_a_second_run_matches_names_as_the_first(then: str | None, now: str | None, between: list[str | None]) -> None:
    older = [of(each) for each in (*between, then)]
    made = decided_properties(carried(then), SCHEMA, of(now), older)
    assert matched(made) == matched(of(then))
    assert made["other"] == "property"


MANY = json.dumps([entry(1, [f"name {number}" for number in range(100)], [])])


def test_very_many_names_are_a_digest_and_looked_for_where_they_stood() -> None:
    names = carried(MANY)
    assert isinstance(names, str) and len(names) == 16
    asked: list[int] = []

    def older() -> Iterator[Mapping[str, str]]:
        for number, mapping in enumerate(("no mapping", None, MANY, "never asked for")):
            asked.append(number)
            yield of(mapping)

    found = decided_properties(names, SCHEMA, of(None), older())
    assert matched(found) == matched(of(MANY)) and asked == [0, 1, 2]
    # What came since for other columns is no other mapping.
    asked.clear()
    more = json.dumps([*json.loads(MANY), entry(99, ["of a column that came since"], [])])
    assert matched(decided_properties(names, SCHEMA, of(more), older())) == matched(of(MANY)) and asked == []
    # Where nothing goes with it any more, the mapping stays as it is, and letters that are missing are told.
    assert decided_properties(names, SCHEMA, of("[]"), [of(None)]) == of("[]")


@pytest.mark.parametrize(
    ("document", "found"), [(None, None), ({}, {}), ({"1": ["a"]}, {1: ("a",)}), ("ab", "ab"), (5, None)]
)
def test_what_a_stamp_says(document: Any, found: Any) -> None:
    assert unpack_names(document) == found
    assert pack_names(found) == (document if document != 5 else None)
