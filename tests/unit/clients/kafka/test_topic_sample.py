"""Which offsets a sample of a topic has."""

from __future__ import annotations

import pytest

from jobs.clients.kafka.topic_sample import sample_ranges
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

P = [TopicPartition("t", number) for number in range(3)]


@pytest.mark.parametrize(
    ("log", "records", "newest", "oldest"),
    [
        ([(0, 10)], 4, [(6, 10)], [(0, 4)]),
        ([(5, 10)], 99, [(5, 10)], [(5, 10)]),
        ([(0, 100), (0, 100)], 10, [(95, 100), (95, 100)], [(0, 5), (0, 5)]),
        ([(0, 100), (7, 8), (0, 0)], 11, [(90, 100), (7, 8), None], [(0, 10), (7, 8), None]),
        ([(0, 9), (0, 9), (0, 9)], 4, [(7, 9), (8, 9), (8, 9)], [(0, 2), (0, 1), (0, 1)]),
        ([(3, 3)], 5, [None], [None]),
        ([], 5, [], []),
    ],
)
def test_each_partition_gives_as_much_as_it_has(
    log: list[tuple[int, int]],
    records: int,
    newest: list[tuple[int, int] | None],
    oldest: list[tuple[int, int] | None],
) -> None:
    earliest = {p: first for p, (first, _) in zip(P, log, strict=False)}
    latest = {p: end for p, (_, end) in zip(P, log, strict=False)}
    for end, expected in (("newest", newest), ("oldest", oldest)):
        ranges = {p: OffsetRange(*each) for p, each in zip(P, expected, strict=False) if each}
        assert sample_ranges(earliest, latest, records, end) == ranges  # type: ignore[arg-type]
