"""Import of a queue: the size of its batches, and what it counts."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.dead_letters.connect_queue.importer import import_batches
from jobs.dead_letters.connect_queue.task import (
    FIRST_RECORDS,
    MAX_RECORDS,
    BatchSize,
    QueueCounts,
)
from jobs.dead_letters.replay.request import MAX_BYTES, Pace
from jobs.dead_letters.replay.result import ReplayProgress
from jobs.tables.commit.stamp.offsets import TopicPartition

QUEUE = TopicPartition("payments.dlq", 0)


class Runner:
    """Imports each batch as it is told."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.counts: QueueCounts = QueueCounts()

    def run(self, frame: Any, batch: int, end: dict[TopicPartition, int]) -> None:
        before = self.ends[-1] if self.ends else 0
        self.ends.append(end[QUEUE])
        self.counts = QueueCounts(read=end[QUEUE] - before)


def test_a_rate_makes_small_batches_with_pauses_between_them() -> None:
    pauses: list[float] = []
    runner: Any = Runner()
    told: list[ReplayProgress] = []
    pace = Pace(2, 100, sleep=pauses.append)
    counts = import_batches(runner, BatchSize(), {QUEUE: 0}, {QUEUE: 25}, pace, told.append)
    assert (runner.ends, counts.read) == ([10, 20, 25], 25)
    assert [round(pause) for pause in pauses] == [5, 10]
    assert [(each.total, each.done) for each in told] == [(25, 10), (25, 20), (25, 25)]


def test_without_a_rate_the_size_of_records_decides() -> None:
    runner: Any = Runner()
    size = BatchSize()
    size.most = 15
    import_batches(runner, size, {QUEUE: 3}, {QUEUE: 25}, Pace(None, 100), lambda progress: None)
    assert runner.ends == [18, 25]


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
