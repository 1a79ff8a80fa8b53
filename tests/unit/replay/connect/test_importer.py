"""The batches in which a queue is imported."""

from __future__ import annotations

from typing import Any

from jobs.commit.offsets import TopicPartition
from jobs.replay.connect.importer import import_batches
from jobs.replay.connect.task import BatchSize, QueueCounts
from jobs.replay.request import Pace
from jobs.replay.result import ReplayProgress

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
