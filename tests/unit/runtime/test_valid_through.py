from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_parts import Counts
from jobs.runtime.slice_plan import Tally
from jobs.runtime.task_results import TaskResults, valid_through

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 10_000


def tally(partition: int, newest: int | None) -> Tally:
    return Tally("t", partition, newest_ms=newest)


@pytest.mark.parametrize(
    ("end", "latest", "tallies", "before", "expected"),
    [
        ({P0: 5}, {P0: 5}, [], None, NOW),
        ({P0: 5}, {}, [], None, NOW),
        ({P0: 5}, {P0: 9}, [tally(0, 7_000)], None, 7_000),
        ({P0: 5}, {P0: 9}, [tally(0, 7_000), tally(0, 8_000)], None, 8_000),
        ({P0: 5}, {P0: 9}, [tally(0, None)], 6_000, 6_000),
        ({P0: 5}, {P0: 9}, [], None, None),
        ({P0: 5, P1: 3}, {P0: 9, P1: 3}, [tally(0, 7_000), tally(1, 1)], None, 7_000),
        ({P0: 5, P1: 3}, {P0: 9, P1: 4}, [tally(0, 7_000), tally(1, 6_500)], None, 6_500),
        ({P0: 5, P1: 3}, {P0: 9, P1: 4}, [tally(0, 7_000)], 6_000, 6_000),
        ({P0: 5}, {P0: 9}, [tally(0, 5_000)], 6_000, 6_000),
        ({P0: 5}, {P0: 9}, [tally(0, 99_000)], None, NOW),
        ({}, {}, [], 6_000, 6_000),
        ({}, {}, [], None, None),
    ],
    ids=[
        "read to the end",
        "end not known to be further",
        "not to the end: its newest record",
        "of several slices the newest",
        "not touched: what was said before",
        "nothing can be said",
        "the least complete partition",
        "the older of two",
        "one touched, one not",
        "never less than it was",
        "a clock ahead of ours",
        "no partition, something before",
        "no partition",
    ],
)
def test_cases(end: dict, latest: dict, tallies: list[Tally], before: int | None, expected: int | None) -> None:
    assert valid_through(end, latest, tallies, before, NOW) == expected


@given(
    st.dictionaries(st.sampled_from([P0, P1]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from([P0, P1]), st.integers(0, 9)),
    st.lists(st.builds(tally, st.integers(0, 1), st.none() | st.integers(0, 2 * NOW))),
    st.none() | st.integers(0, NOW),
)
def test_it_never_goes_back_and_never_into_the_future(
    end: dict, latest: dict, tallies: list[Tally], before: int | None
) -> None:
    through = valid_through(end, latest, tallies, before, NOW)
    assert through is None or (before or 0) <= through <= NOW
    assert before is None or through is not None


def test_results_are_summed_over_slices() -> None:
    one = Tally("t", 0, read=5, landed=3, dead=1, tombstones=1, reasons={"wrong_type": 1}, unknown_fields={"$.x": 2})
    two = Tally("t", 1, read=2, landed=1, dead=1, reasons={"wrong_type": 1})
    results = TaskResults({"a.t": [], "a.d": []}, [one, two])
    assert results.counts() == Counts(read=7, landed=4, dead=2, tombstones=1)
    assert results.summed(lambda each: each.reasons) == {"wrong_type": 2}
    assert results.summed(lambda each: each.unknown_fields) == {"$.x": 2}
    assert results.rows() == {}
