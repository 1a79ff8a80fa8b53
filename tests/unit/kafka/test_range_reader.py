"""Which pieces of a slice are read at once."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from jobs.commit.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.kafka.range_reader import MOST_RECORDS, bundles

PIECES = st.lists(
    st.builds(
        lambda partition, start, count: PartitionRange(
            TopicPartition("t", partition), OffsetRange(start, start + count)
        ),
        st.integers(0, 20),
        st.integers(0, 2**40),
        st.integers(1, 2 * MOST_RECORDS) | st.integers(1, 100),
    ),
    max_size=60,
)


def records(bundle: list[PartitionRange]) -> int:
    return sum(range_.end - range_.start for _, range_ in bundle)


@given(PIECES)
def test_bundles_keep_the_order_fill_a_block_and_hold_a_partition_once(pieces: list[PartitionRange]) -> None:
    found = list(bundles(pieces))
    assert [piece for bundle in found for piece in bundle] == pieces
    for bundle in found:
        assert len({source for source, _ in bundle}) == len(bundle)
        assert len(bundle) == 1 or records(bundle) <= MOST_RECORDS
    for bundle, following in itertools.pairwise(found):
        fits = records(bundle) + records(following[:1]) <= MOST_RECORDS
        assert not fits or following[0][0] in dict(bundle)
