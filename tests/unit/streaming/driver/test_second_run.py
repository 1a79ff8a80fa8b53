"""The part of a batch that the coordinator has and another target lacks."""

from hypothesis import given
from hypothesis import strategies as st

from jobs.streaming.driver.context.second_run import half_committed
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

PARTITIONS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
offsets = st.integers(0, 6)
ranges_ = st.dictionaries(
    st.sampled_from(PARTITIONS), st.tuples(offsets, offsets).map(lambda two: OffsetRange(min(two), max(two)))
)
positions_ = st.dictionaries(st.sampled_from(PARTITIONS), offsets)


@given(ranges_, positions_, st.lists(positions_, min_size=1, max_size=2), positions_)
def test_it_is_what_one_has_and_another_has_not(
    ranges: dict[TopicPartition, OffsetRange],
    coordinator: dict[TopicPartition, int],
    others: list[dict[TopicPartition, int]],
    start: dict[TopicPartition, int],
) -> None:
    positions = {"orders": coordinator} | {f"other {n}": at for n, at in enumerate(others)}
    half = half_committed(ranges, positions, "orders", start)
    every = {(p, offset) for p, (first, _) in ranges.items() for offset in range(first, 7)}
    has = {(p, offset) for p, offset in every if offset < coordinator.get(p, 0)}
    lacks = {(p, offset) for at in others for p, offset in every if offset >= at.get(p, 0)}
    assert (half is not None) == bool(has & lacks)
    if half is not None:
        assert half.keys() == ranges.keys()
        part = {(p, offset) for p, end in half.items() for offset in range(ranges[p].start, end)}
        landed_again = any(p in start and offset < start[p] for p, offset in has & lacks)
        assert part == ({(p, offset) for p, offset in has if offset < ranges[p].end} if landed_again else has)


def test_what_is_landed_again_from_long_before_keeps_to_the_bounds_of_batches() -> None:
    p = PARTITIONS[0]
    positions = {"orders": {p: 10**9}, "dead": {p: 0}}
    assert half_committed({p: OffsetRange(0, 1000)}, positions, "orders", {p: 10**9 - 500}) == {p: 1000}
    positions["dead"] = {p: 10**9 - 500}
    whole = half_committed({p: OffsetRange(10**9 - 500, 10**9 - 400)}, positions, "orders", {p: 10**9 - 500})
    assert whole == {p: 10**9}
