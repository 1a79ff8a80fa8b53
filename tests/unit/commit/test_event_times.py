from hypothesis import given
from hypothesis import strategies as st

from jobs.commit.event_times import (
    MOST_PERIODS,
    NO_EVENTS,
    EventCounts,
    EventTimes,
    PartitionTime,
    pack_event_times,
    unpack_event_times,
)
from jobs.commit.offsets import TopicPartition
from tests.unit.commit.strategies import event_counts, event_times

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
