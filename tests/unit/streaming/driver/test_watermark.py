"""The watermark against a model that keeps every event, and looks at all of them again each time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.stream.event_time import EventTime
from jobs.streaming.driver.batch.watermark import (
    advanced,
    believed_until,
    known_times,
    passed_bounds,
)
from jobs.streaming.driver.context.completeness import ObservedEnds
from jobs.tables.commit.stamp.event_times import EventCounts, EventTimes, PartitionTime
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts, PartitionCounts
from jobs.tables.commit.stamp.stamps import Stamp

ONE, TWO = TopicPartition("payments", 0), TopicPartition("payments", 1)
MINUTE = 60_000
SPEC = EventTime.model_validate({"column": "at", "grace": "10m", "idle_after": "5m"})
NEW = EventTimes("at")


def step(before: EventTimes, read: dict[TopicPartition, int], now: int, *, behind: int = 0, through: int | None = None):
    """A batch that reads both partitions to their ends but for so many records."""
    end = {ONE: 100, TWO: 100}
    return advanced(before, SPEC, read, end, ObservedEnds(now, {ONE: 100, TWO: 100 + behind}), through)


def test_it_is_the_slowest_partitions_less_the_grace() -> None:
    after = step(NEW, {ONE: 100 * MINUTE, TWO: 90 * MINUTE}, 101 * MINUTE)
    assert after.watermark_ms == 80 * MINUTE
    assert after.bound_ms is None
    again = step(after, {ONE: 120 * MINUTE, TWO: 85 * MINUTE}, 121 * MINUTE)
    assert (again.watermark_ms, again.bound_ms) == (80 * MINUTE, 80 * MINUTE)
    assert again.partitions[TWO] == PartitionTime(90 * MINUTE, 121 * MINUTE)


def test_a_partition_that_never_had_an_event_holds_it_until_it_is_idle() -> None:
    after = step(NEW, {ONE: 100 * MINUTE}, 100 * MINUTE)
    assert after.watermark_ms is None
    assert step(after, {ONE: 104 * MINUTE}, 104 * MINUTE).watermark_ms is None
    assert step(after, {ONE: 105 * MINUTE}, 105 * MINUTE).watermark_ms == 95 * MINUTE


def test_a_partition_that_is_not_read_to_its_end_is_not_idle() -> None:
    after = step(NEW, {ONE: 100 * MINUTE, TWO: 60 * MINUTE}, 100 * MINUTE)
    assert step(after, {ONE: 200 * MINUTE}, 200 * MINUTE, behind=1).watermark_ms == 50 * MINUTE
    assert step(after, {ONE: 200 * MINUTE}, 200 * MINUTE).watermark_ms == 190 * MINUTE


def test_all_idle_it_moves_on_to_what_is_complete_less_the_grace() -> None:
    after = step(NEW, {ONE: 100 * MINUTE, TWO: 100 * MINUTE}, 100 * MINUTE)
    assert step(after, {}, 104 * MINUTE, through=104 * MINUTE).watermark_ms == 90 * MINUTE
    assert step(after, {}, 105 * MINUTE, through=105 * MINUTE).watermark_ms == 95 * MINUTE
    assert step(after, {}, 300 * MINUTE, through=None).watermark_ms == 90 * MINUTE
    assert step(after, {}, 300 * MINUTE, through=300 * MINUTE, behind=1).watermark_ms == 90 * MINUTE


def test_a_clock_that_is_ahead_moves_it_no_further_than_now() -> None:
    assert believed_until(SPEC, 100 * MINUTE) == 110 * MINUTE
    short = EventTime.model_validate({"column": "at", "grace": "1s"})
    assert believed_until(short, 100 * MINUTE) == 101 * MINUTE
    after = advanced(NEW, short, {ONE: 101 * MINUTE}, {ONE: 1}, ObservedEnds(100 * MINUTE, {ONE: 1}), None)
    assert after.watermark_ms == 100 * MINUTE


def test_what_another_column_said_counts_for_nothing() -> None:
    stamp = Stamp("payments", "batch", 1, 1, "c", {}, {}, event_time=EventTimes("other", 5, 4))
    assert known_times(stamp, SPEC) == NEW
    assert known_times(None, SPEC) == NEW
    assert known_times(replace(stamp, event_time=EventTimes("at", 5, 4)), SPEC) == EventTimes("at", 5, 4)


@dataclass
class Model:
    """Keeps all that ever happened: (time read, event time) by partition, and when each was first met."""

    met: dict[TopicPartition, int] = field(default_factory=dict)
    events: dict[TopicPartition, list[tuple[int, int]]] = field(default_factory=dict)
    reached: int | None = None
    floor: int | None = None

    def watermark(self, present: set[TopicPartition], lags: set[TopicPartition], now: int, through: int) -> int | None:
        holding: list[int | None] = []
        for partition in sorted(present):
            events = self.events.get(partition, [])
            quiet_since = max([self.met[partition], *(at for at, _ in events)])
            if partition in lags or now - quiet_since < 5 * MINUTE:
                holding.append(max((event for _, event in events), default=None))
        found = (
            through if not holding else None if None in holding else min(each for each in holding if each is not None)
        )
        if found is not None:
            known = [each for each in (self.reached, min(found - 10 * MINUTE, now)) if each is not None]
            self.reached = max(known)
        return self.reached


partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 2))
batches = st.lists(
    st.tuples(
        # Minutes until the batch; a driver may have been down in between.
        st.integers(0, 12),
        # What it reads of which partition, minutes before or after now.
        st.dictionaries(partitions, st.lists(st.integers(-300, 8), min_size=1, max_size=4), max_size=3),
        st.sets(partitions, max_size=2),
        st.sampled_from(["on", "restart", "recreated a", "retired b", "reset"]),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(batches)
def test_it_is_what_a_model_that_forgets_nothing_says(
    story: list[tuple[int, dict[TopicPartition, list[int]], set[TopicPartition], str]],
) -> None:
    """Out of order, with idle and new partitions, over restarts, another topic of a name, retirement, and resets."""
    model, known, now = Model(), NEW, 10_000 * MINUTE
    present: set[TopicPartition] = set()
    for minutes, read, lags, happens in story:
        now += minutes * MINUTE
        if happens == "restart":
            stamp = Stamp("payments", "batch", 1, 1, "c", {}, {}, event_time=known)
            known = known_times(Stamp.from_json(stamp.claimed(2).to_json()), SPEC)
        elif happens in ("recreated a", "retired b"):
            topic = happens[-1]
            if topic == "a":
                known = known.without_topic("a")
            for kept in (model.met, model.events):
                for partition in [each for each in kept if each.topic == topic]:
                    del kept[partition]
            present = {each for each in present if each.topic != topic}
            if topic == "b":
                # A batch goes on without it, and the stamp forgets it.
                read = {partition: events for partition, events in read.items() if partition.topic != "b"}
                lags = {partition for partition in lags if partition.topic != "b"}
        # After a reset old records are read again: they are events like others.
        before = known.watermark_ms
        present |= {*read, *lags}
        for partition in present:
            model.met.setdefault(partition, now)
        for partition, events in read.items():
            model.events.setdefault(partition, []).extend((now, now + event * MINUTE) for event in events)
        greatest = {partition: now + max(events) * MINUTE for partition, events in read.items()}
        end = dict.fromkeys(present, 10)
        logs = ObservedEnds(now, {partition: 11 if partition in lags else 10 for partition in present})
        known = advanced(known, SPEC, greatest, end, logs, now if present else None)
        expected = model.watermark(present, lags & present, now, now) if present else model.reached
        assert known.watermark_ms == expected
        assert known.bound_ms == before
        assert set(known.partitions) == present
        # It never moves back, and is never later than the clock.
        assert before is None or (known.watermark_ms is not None and known.watermark_ms >= before)
        assert known.watermark_ms is None or known.watermark_ms <= now


def stamped(
    start: int, stood: int, position: int, bound: int | None, kind: Literal["batch", "claim"] = "batch"
) -> Stamp:
    parts = {ONE: PartitionCounts(stood, Counts())} if kind == "batch" else {}
    times = EventTimes("at", 999, bound)
    return Stamp("payments", kind, 1, 1, "c", {ONE: start}, {ONE: position}, parts=parts, event_time=times)


@pytest.mark.parametrize(
    ("stamps", "newest", "start", "expected"),
    [
        # The batch at hand was landed in part: its own bound.
        ([stamped(50, 50, 80, 7), stamped(0, 0, 50, 3)], stamped(50, 50, 80, 7, "claim"), 50, ((50, 7),)),
        # Several batches are read again for the dead letters alone.
        ([stamped(50, 50, 80, 7), stamped(20, 20, 50, 3), stamped(0, 0, 20, None)], stamped(50, 50, 80, 7, "claim"), 10,
         ((0, None), (20, 3), (50, 7))),
        # A second run began below where the table stood.
        ([stamped(20, 60, 80, 7), stamped(20, 20, 60, 3)], stamped(20, 20, 80, 7, "claim"), 20, ((20, 3), (60, 7))),
        # Expired: the newest bound, which makes no fewer letters.
        ([stamped(50, 50, 80, 7)], stamped(50, 50, 80, 7, "claim"), 10, ((10, 7), (50, 7))),
        ([], stamped(50, 50, 80, 7, "claim"), 10, ((10, 7), (50, 7))),
        # The table has nothing of it yet.
        ([stamped(0, 0, 50, 3)], stamped(0, 0, 50, 3), 50, None),
    ],
)  # fmt: skip
def test_records_are_judged_again_as_they_were(
    stamps: list[Stamp], newest: Stamp, start: int, expected: tuple[tuple[int, int | None], ...] | None
) -> None:
    found = passed_bounds({ONE: OffsetRange(start, 90)}, newest, stamps, SPEC)
    assert found.get(ONE) == expected


def test_what_a_batch_held_goes_along() -> None:
    held = EventCounts(5 * MINUTE, 9 * MINUTE, 2)
    after = advanced(replace(NEW, first_ms=7 * MINUTE), SPEC, {}, {}, ObservedEnds(0, {}), None, held)
    assert (after.first_ms, after.batch) == (5 * MINUTE, held)
    assert after.watermark_ms is None
