"""Which offsets a preview looks at."""

from __future__ import annotations

import pytest

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.deadletter.selection import parse_offsets
from jobs.errors import FrazilError
from jobs.preview.run import MOST_RECORDS, newest_ranges, selected_ranges

P0, P1, Q0 = TopicPartition("p", 0), TopicPartition("p", 1), TopicPartition("q", 0)
LOG = {P0: OffsetRange(10, 100), P1: OffsetRange(0, 5), Q0: OffsetRange(3, 3)}


def selected(*texts: str) -> dict[TopicPartition, OffsetRange]:
    return dict(selected_ranges(LOG, map(parse_offsets, texts)))


@pytest.mark.parametrize(
    ("records", "ranges"),
    [
        (8, {P0: (96, 100), P1: (1, 5)}),
        (20, {P0: (85, 100), P1: (0, 5)}),
        (1_000, {P0: (10, 100), P1: (0, 5)}),
    ],
)
def test_the_newest_records_are_of_all_partitions_alike(
    records: int, ranges: dict[TopicPartition, tuple[int, int]]
) -> None:
    assert newest_ranges({P0: LOG[P0], P1: LOG[P1]}, records) == ranges


def test_nothing_is_newest_of_nothing() -> None:
    assert newest_ranges({}, 5) == {}
    assert newest_ranges({Q0: LOG[Q0]}, 5) == {}


@pytest.mark.parametrize(
    ("texts", "ranges"),
    [
        (["p"], {P0: (10, 100), P1: (0, 5)}),
        (["p:1"], {P1: (0, 5)}),
        (["p:0:17-42"], {P0: (17, 43)}),
        (["p:0:0-12"], {P0: (10, 13)}),
        (["p:0:90-"], {P0: (90, 100)}),
        (["p:0:20-21", "p:0:30-30", "p:1:2-2"], {P0: (20, 31), P1: (2, 3)}),
        (["q"], {}),
    ],
)
def test_offsets_are_taken_as_far_as_kafka_has_them(
    texts: list[str], ranges: dict[TopicPartition, tuple[int, int]]
) -> None:
    assert selected(*texts) == ranges


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("other", "does not read other; it reads p, q"),
        ("p:7", "does not read p-7; it reads p-0, p-1, q-0"),
        ("p:0:0-9", r"keeps no record .* of p-0: it has the offsets \[10, 100\)"),
        ("p:0:100-", "keeps no record"),
    ],
)
def test_offsets_that_mean_nothing_are_refused(text: str, said: str) -> None:
    with pytest.raises(FrazilError, match=said):
        selected(text)


def test_there_is_a_limit() -> None:
    log = {P0: OffsetRange(0, MOST_RECORDS), P1: OffsetRange(0, 1)}
    assert sum(end - start for start, end in selected_ranges(log, [parse_offsets("p:0")]).values()) == MOST_RECORDS
    with pytest.raises(FrazilError, match=r"100,001 records are asked for .* 100,000 at most"):
        selected_ranges(log, [parse_offsets("p")])
