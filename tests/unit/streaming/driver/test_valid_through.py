"""The time through which a stream is complete: by the ends of the logs, and by times that the broker set."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.streaming.driver.context.completeness import ObservedEnds, settled_through, valid_through
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.task.tally import Tally
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from tests.helpers.evolving_stream import SINK
from tests.helpers.opened_stream import OpenedStream

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOW, EARLIER = 10_000, 9_000


def tally(partition: int, appended: int | None) -> Tally:
    return Tally("t", partition, appended_ms=appended)


@pytest.mark.parametrize(
    ("end", "watermarks", "tallies", "before", "earlier", "expected"),
    [
        ({P0: 5}, {P0: 5}, [], None, None, NOW),
        ({P0: 5}, {}, [], None, None, NOW),
        ({P0: 5}, {P0: 9}, [tally(0, 7_000)], None, None, 7_000),
        ({P0: 5}, {P0: 9}, [tally(0, 7_000), tally(0, 8_000)], None, None, 8_000),
        ({P0: 5}, {P0: 9}, [tally(0, None)], 6_000, None, 6_000),
        ({P0: 5}, {P0: 9}, [tally(0, None)], None, None, None),
        ({P0: 5}, {P0: 9}, [], None, None, None),
        ({P0: 5, P1: 3}, {P0: 9, P1: 3}, [tally(0, 7_000), tally(1, 1)], None, None, 7_000),
        ({P0: 5, P1: 3}, {P0: 9, P1: 4}, [tally(0, 7_000), tally(1, 6_500)], None, None, 6_500),
        ({P0: 5, P1: 3}, {P0: 9, P1: 4}, [tally(0, 7_000)], 6_000, None, 6_000),
        ({P0: 5, P1: 3}, {P0: 9, P1: 4}, [tally(0, 7_000)], None, None, None),
        ({P0: 5}, {P0: 9}, [tally(0, 5_000)], 6_000, None, 6_000),
        ({P0: 5}, {P0: 9}, [tally(0, 99_000)], None, None, NOW),
        ({P0: 5}, {P0: 9}, [], 6_000, {P0: 5}, EARLIER),
        ({P0: 5}, {P0: 9}, [], None, {P0: 5}, EARLIER),
        ({P0: 5}, {P0: 9}, [], 6_000, {P0: 6}, 6_000),
        ({P0: 5, P1: 3}, {P0: 9, P1: 3}, [], 6_000, {P0: 4, P1: 3}, EARLIER),
        ({P0: 5, P1: 3}, {P0: 9, P1: 3}, [], 6_000, {P0: 6, P1: 3}, 6_000),
        ({P0: 5, P1: 3}, {P0: 9, P1: 4}, [], 6_000, {P0: 5}, 6_000),
        ({}, {}, [], 6_000, None, 6_000),
        ({}, {}, [], None, None, None),
    ],
    ids=[
        "read to the end",
        "end not known to be further",
        "not to the end: its newest record, whose time the broker set",
        "of several slices the newest",
        "a producer's time is no proof: what was said before",
        "a producer's time is no proof: nothing",
        "nothing can be said",
        "the least complete partition",
        "the older of two",
        "one touched, one not",
        "one touched, of the other nothing is known",
        "never less than it was",
        "a broker's clock ahead of ours",
        "past the end that the log had earlier",
        "past the end that the log had earlier, and nothing was said before",
        "not past it",
        "past it, and the other at its end",
        "one of two not past it",
        "a partition that was not seen earlier",
        "no partition, something before",
        "no partition",
    ],
)
def test_cases(
    end: dict, watermarks: dict, tallies: list[Tally], before: int | None, earlier: dict | None, expected: int | None
) -> None:
    seen = None if earlier is None else ObservedEnds(EARLIER, earlier)
    assert valid_through(end, ObservedEnds(NOW, watermarks), tallies, before, seen) == expected


some_offsets = st.dictionaries(st.sampled_from([P0, P1]), st.integers(0, 9))


@given(
    some_offsets,
    some_offsets,
    st.lists(st.builds(tally, st.integers(0, 1), st.none() | st.integers(0, 2 * NOW))),
    st.none() | st.integers(0, NOW),
    st.none() | st.builds(ObservedEnds, st.integers(0, NOW), some_offsets),
)
def test_it_never_goes_back_and_never_into_the_future(
    end: dict, watermarks: dict, tallies: list[Tally], before: int | None, earlier: ObservedEnds | None
) -> None:
    through = valid_through(end, ObservedEnds(NOW, watermarks), tallies, before, earlier)
    assert through is None or (before or 0) <= through <= NOW
    assert before is None or through is not None


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12))
def test_no_record_that_waits_is_older_than_what_is_said(steps: list[tuple[int, int, int]]) -> None:
    """One partition, whose records come at once, are decided later, and are read later still, with batches between."""
    log: list[int] = []
    decided = read = 0
    through: int | None = None
    observed_ends: ObservedEnds | None = None
    for now, (come, decide, taken) in enumerate(steps, start=1):
        log += [now] * come
        decided = min(len(log), decided + decide)
        read = min(decided, read + taken)
        seen = ObservedEnds(now, {P0: len(log)})
        through = valid_through({P0: read}, seen, [], through, observed_ends)
        if observed_ends is None or observed_ends.reached({P0: read}):
            observed_ends = seen
        assert through is None or all(came >= through for came in log[read:])
    # Whatever waited, once all is read, all is said.
    assert valid_through({P0: len(log)}, ObservedEnds(99, {P0: len(log)}), [], through, observed_ends) == 99


def test_results_are_summed_over_slices() -> None:
    one = Tally("t", 0, read=5, landed=3, dead=1, tombstones=1, reasons={"wrong_type": 1}, unknown_fields={"$.x": 2})
    two = Tally("t", 1, read=2, landed=1, dead=1, reasons={"wrong_type": 1})
    results = TaskResults({"a.t": [], "a.d": []}, [one, two])
    assert results.counts() == Counts(read=7, landed=4, dead=2, tombstones=1)
    assert results.summed(lambda each: each.reasons) == {"wrong_type": 2}
    assert results.summed(lambda each: each.unknown_fields) == {"$.x": 2}
    assert results.rows() == {}


DEAD = f"{SINK}_dead"


@pytest.mark.parametrize("lacking", ["orders.changes", DEAD])
def test_it_stays_before_a_half_committed_batch(tmp_path: Path, lacking: str) -> None:
    one = OpenedStream(tmp_path / "home")

    def stamped() -> int | None:
        newest = history(one.table.metadata, "payments").newest
        return newest.valid_through_ms if newest else None

    one.land_elsewhere()
    first = stamped()
    assert first is not None and settled_through(one.spec, one.catalog, one.table.metadata) == first
    one.killed_before(lacking)
    second = stamped()
    assert second is not None and second > first
    assert settled_through(one.spec, one.catalog, one.table.metadata) == first
    with one.opened():
        pass
    assert settled_through(one.spec, one.catalog, one.table.metadata) == second
