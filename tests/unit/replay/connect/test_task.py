"""How many records of a queue are taken at once."""

from __future__ import annotations

import pytest

from jobs.replay.connect.task import FIRST_RECORDS, MAX_RECORDS, BatchSize
from jobs.replay.request import MAX_BYTES


@pytest.mark.parametrize(
    ("average", "most"), [(100, MAX_RECORDS), (64 * 1024, 1024), (3 * MAX_BYTES, 1), (0, MAX_RECORDS)]
)
def test_batches_hold_about_so_many_bytes(average: int, most: int) -> None:
    size = BatchSize()
    assert size.most == FIRST_RECORDS
    for _ in range(4):
        size.learn(size.most, size.most * average)
        assert size.most * average <= max(MAX_BYTES, average)
    assert size.most == most


def test_a_batch_without_records_teaches_nothing() -> None:
    size = BatchSize()
    size.learn(0, 0)
    assert size.most == FIRST_RECORDS


def test_growth_is_slow_enough_to_meet_larger_records() -> None:
    size = BatchSize()
    size.learn(FIRST_RECORDS, FIRST_RECORDS)
    assert FIRST_RECORDS < size.most < MAX_RECORDS
    size.learn(1, MAX_BYTES)
    assert size.most == 1
