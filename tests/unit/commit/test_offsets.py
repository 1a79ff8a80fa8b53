from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from jobs.commit.offsets import (
    Gap,
    OffsetRange,
    TopicPartition,
    describe_ranges,
    from_spark_offsets,
    pointwise_max,
    spark_offsets,
)
from tests.unit.commit.strategies import positions

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
