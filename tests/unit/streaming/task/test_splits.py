"""A batch's ranges in slices: every offset once, in as many slices as there are cores."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.streaming.task.splits import LEAST, split_ranges
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

RANGES = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5)),
    st.tuples(st.integers(0, 2**40), st.integers(0, 100_000)).map(lambda pair: OffsetRange(pair[0], sum(pair))),
    max_size=12,
)


@given(RANGES, st.integers(1, 16), st.integers(1, 50_000))
def test_every_offset_is_read_once_and_the_slices_are_even(
    ranges: dict[TopicPartition, OffsetRange], cores: int, least: int
) -> None:
    slices = split_ranges(ranges, cores, least=least)
    pieces = [piece for slice_ in slices for piece in slice_]
    assert pieces == sorted(pieces)
    for where, (start, end) in ranges.items():
        at = start
        for _, piece in (each for each in pieces if each[0] == where):
            assert piece.start == at
            assert piece.end > piece.start
            at = piece.end
        assert at == end
    sizes = [sum(piece.end - piece.start for _, piece in slice_) for slice_ in slices]
    assert len(slices) <= cores
    assert all(sizes)
    if len(sizes) > 1:
        assert len(set(sizes[:-1])) == 1
        assert sizes[-1] <= sizes[0]
        assert sum(sizes) >= least * len(sizes)


def test_one_large_partition_keeps_all_cores_at_work_and_a_small_batch_one() -> None:
    where = TopicPartition("payments", 0)
    assert len(split_ranges({where: OffsetRange(7, 7 + 4 * LEAST)}, 4)) == 4
    assert len(split_ranges({where: OffsetRange(7, 7 + LEAST // 2)}, 4)) == 1
    many = {TopicPartition("payments", number): OffsetRange(0, 10) for number in range(256)}
    assert len(split_ranges(many, 2)) == 1


def test_what_no_target_lacks_is_not_read() -> None:
    one, two = TopicPartition("payments", 0), TopicPartition("payments", 1)
    ranges = {one: OffsetRange(0, 5), two: OffsetRange(3, 3)}
    assert split_ranges(ranges, 2, {one}) == []
    assert split_ranges(ranges, 2) == [[(one, OffsetRange(0, 5))]]
