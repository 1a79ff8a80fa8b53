"""Blocks that are joined: as many as the last one had writer schemas, of one partition, bounded by bytes, none lost."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.kafka.range_reader import MOST_BYTES
from jobs.clients.kafka.records import FetchedBlock
from jobs.streaming.task.run import MOST_JOINED, joined_blocks
from jobs.tables.commit.stamp.offsets import TopicPartition


def block(partition: int, first: int, records: int, size: int = 1) -> FetchedBlock:
    offsets = pa.array(range(first, first + records), pa.int64())
    rows = pa.RecordBatch.from_arrays([pa.array([b"x" * size] * records, pa.binary()), offsets], ["value", "offset"])
    return FetchedBlock(TopicPartition("t", partition), rows, lambda wanted: rows.take(pa.array(wanted)), first, first)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4)), max_size=20), st.integers(0, 9))
def test_every_record_comes_once_and_in_order(sizes: list[tuple[int, int]], groups: int) -> None:
    at = count()
    blocks = [block(partition, 10 * next(at), records) for partition, records in sizes]
    found = list(joined_blocks(blocks, lambda: groups))
    offsets = [offset for each in found for offset in each.records.column("offset").to_pylist()]
    assert offsets == [offset for each in blocks for offset in each.records.column("offset").to_pylist()]
    for each in found:
        every = list(range(each.records.num_rows))
        for rows in (every, every[::2], every[-1:]):
            assert each.whole(rows).equals(each.records.take(pa.array(rows)))
        assert each.leader_epoch == each.appended_ms == each.records.column("offset")[-1].as_py() // 10 * 10


def test_as_many_as_the_last_block_had_groups() -> None:
    groups = iter([1, 3, 3, 3, 100, *[100] * MOST_JOINED])
    found = joined_blocks((block(0, number, 1) for number in range(4 + MOST_JOINED)), lambda: next(groups))
    assert [each.records.num_rows for each in found] == [1, 3, MOST_JOINED]


def test_a_partition_is_joined_with_no_other() -> None:
    found = joined_blocks([block(0, 0, 2), block(1, 0, 3), block(1, 3, 4)], lambda: 5)
    assert [(each.source.partition, each.records.num_rows) for each in found] == [(0, 2), (1, 7)]


def test_large_records_are_not_held_beyond_two_blocks_bytes() -> None:
    large = MOST_BYTES // 10
    found = list(joined_blocks((block(0, number, 8, large) for number in range(6)), lambda: 6))
    assert [each.records.num_rows for each in found] == [16, 16, 16]
