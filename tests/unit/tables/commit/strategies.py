"""Hypothesis strategies for positions, ranges and stamps."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from hypothesis import strategies as st

from jobs.tables.commit.stamp.event_times import EventCounts, EventTimes, PartitionTime
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import (
    AnswerName,
    Counts,
    Decision,
    LastRead,
    PartitionCounts,
)
from jobs.tables.commit.stamp.stamps import Stamp

topics = st.sampled_from(["payments", "payments.20250101", "a-b_c"])
partitions = st.builds(TopicPartition, topics, st.integers(0, 60))
offsets = st.integers(0, 2**62)
positions = st.dictionaries(partitions, offsets, max_size=8)
names = st.sampled_from(["orders.payments", "orders.payments_dead", 'odd."name"'])
counts = st.builds(Counts, *[st.integers(0, 10**12)] * 5)
parts = st.dictionaries(partitions, st.builds(PartitionCounts, offsets, counts), max_size=8)
decided_ranges = st.dictionaries(partitions, st.builds(OffsetRange, offsets, offsets), max_size=3)
decisions = st.builds(
    Decision,
    st.sampled_from(get_args(AnswerName)),
    decided_ranges,
    decided_ranges,
    decided_ranges,
    st.none() | st.integers(0, 10**6),
)
instants = st.integers(-(2**40), 2**45)
event_counts = st.builds(
    EventCounts,
    st.none() | instants,
    st.none() | instants,
    st.integers(0, 10**9),
    st.integers(0, 10**9),
    st.tuples(*[st.integers(0, 10**9)] * 5),
    st.integers(0, 2**40),
    st.integers(0, 10**9),
    st.dictionaries(instants, st.integers(1, 10**6), max_size=4),
    st.integers(0, 10**6),
)
event_times = st.builds(
    EventTimes,
    st.sampled_from(["at", "payload.at"]),
    st.none() | instants,
    st.none() | instants,
    st.dictionaries(partitions, st.builds(PartitionTime, st.none() | instants, instants), max_size=8),
    st.none() | instants,
    event_counts,
)
made_stamps = st.builds(
    Stamp,
    stream=st.sampled_from(["payments", "p2"]),
    kind=st.sampled_from(["batch", "claim", "accept"]),
    batch=st.integers(-1, 10**6),
    epoch=st.integers(1, 10**6),
    config=st.sampled_from(["0123456789ab", "ba9876543210"]),
    start=positions,
    position=positions,
    ends=positions,
    valid_through_ms=st.none() | st.integers(1, 2**45),
    rows=st.dictionaries(names, st.integers(0, 10**9)),
    counts=counts,
    totals=counts,
    targets=st.dictionaries(names, st.uuids().map(str)),
    topics=st.dictionaries(topics, st.text(max_size=30)),
    note=st.none() | st.text(min_size=1),
    parts=parts,
    decision=st.none() | decisions,
    moved=st.none() | st.integers(0, 10**6),
    event_time=st.none() | event_times,
    names=st.none() | st.text(max_size=16) | st.dictionaries(st.integers(1, 10**6), st.tuples(st.text(), st.text())),
    unknown_ids=st.lists(st.integers(0, 2**32 - 1) | st.text(max_size=32)).map(tuple),
)


@st.composite
def stamps(draw: st.DrawFn) -> Stamp:
    """Any stamp; its marks are of its positions, or of others."""
    stamp = draw(made_stamps)
    marks: dict[TopicPartition, LastRead] = {}
    for partition, at in stamp.position.items():
        if draw(st.booleans()):
            marks[partition] = LastRead(at, draw(st.integers(0, at)), draw(st.integers(0, 2**31 - 1)))
    return replace(stamp, last_reads=marks)


@st.composite
def ranges(draw: st.DrawFn) -> dict[TopicPartition, OffsetRange]:
    """A batch's ranges over a few partitions and small offsets, empty ones among them."""
    chosen = draw(st.sets(st.builds(TopicPartition, st.just("t"), st.integers(0, 3)), max_size=4))
    made: dict[TopicPartition, OffsetRange] = {}
    for partition in sorted(chosen):
        start = draw(st.integers(0, 6))
        made[partition] = OffsetRange(start, start + draw(st.integers(0, 6)))
    return made
