"""Sets of offsets, and the passes and batches that land them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jobs.migration.offset_backfill.offset_sets import (
    OffsetSet,
    batches,
    count,
    offset_set,
    passes,
    within,
    without,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
SOME = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda pair: OffsetRange(*pair)), max_size=6)


def offsets(ranges: OffsetSet | list[OffsetRange]) -> set[int]:
    return {offset for start, end in ranges for offset in range(start, end)}


@given(SOME, SOME)
def test_sets_are_those_of_their_offsets(first: list[OffsetRange], second: list[OffsetRange]) -> None:
    one, other = offset_set(first), offset_set(second)
    assert offsets(one) == offsets(first) and count(one) == len(offsets(first))
    assert offsets(without(one, other)) == offsets(first) - offsets(second)
    assert offsets(within(one, other)) == offsets(first) & offsets(second)
    for made in (one, without(one, other), within(one, other)):
        assert all(start < end for start, end in made)
        assert all(before.end < after.start for before, after in itertools.pairwise(made))


def test_passes_have_one_range_of_a_partition_each() -> None:
    ranges = {P1: offset_set([OffsetRange(0, 5)]), P0: offset_set([OffsetRange(0, 2), OffsetRange(4, 9)])}
    assert list(passes(ranges)) == [{P0: OffsetRange(0, 2), P1: OffsetRange(0, 5)}, {P0: OffsetRange(4, 9)}]
    assert list(passes({})) == []


def test_batches_end_at_the_ranges_of_their_pass() -> None:
    stands = {P0: 0, P1: 3, TopicPartition("t", 2): 77}
    pass_ = {P0: OffsetRange(0, 5), P1: OffsetRange(3, 6)}
    ends = [{each: end for each, end in made.items() if each in pass_} for made in batches(pass_, 4, stands)]
    assert ends == [{P0: 4, P1: 3}, {P0: 5, P1: 6}]
    assert all(made[TopicPartition("t", 2)] == 77 for made in batches(pass_, 4, stands))
    assert [made[P0] for made in batches({P0: OffsetRange(0, 4)}, 4, {P0: 0})] == [4]
