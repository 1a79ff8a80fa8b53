"""Discards as a table property: what is kept of those that are older than the newest ones."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from jobs.tables.commit.history.branch import begin_property
from jobs.tables.commit.history.discards import (
    MOST_KEPT,
    Discard,
    Discards,
    is_discarded,
)

AT = datetime(2026, 1, 31, tzinfo=UTC)


def some(*intervals: tuple[int, int], branch: str = "ingest") -> Discards:
    """As many rows as numbers in each interval, and then as many discards as are remembered."""
    found = Discards("s")
    later = [(1000 + 2 * n, 1001 + 2 * n) for n in range(MOST_KEPT)]
    for after, until in (*intervals, *later):
        one = Discard(f"d{after}", branch, after, until, until - after, {}, AT, "ann", "why", letters=1)
        found = Discards.of(found.with_one(one).as_property(), "s")
    return found


def test_older_ones_are_known_by_their_intervals() -> None:
    found = some((0, 2), (2, 5), (7, 8))
    assert len(found.each) == MOST_KEPT
    assert [(each.after, each.until, each.rows) for each in found.forgotten] == [(0, 5, 5), (7, 8, 1)], "joined"
    on = found.on("ingest")
    assert [n for n in range(10) if is_discarded(on, n)] == [1, 2, 3, 4, 5, 8]
    assert sum(each.rows for each in on) == 6 + MOST_KEPT
    assert found.unfinished is None
    assert found.on("other") == ()


def test_finishing_the_newest_forgets_no_other_one() -> None:
    found = some((0, 2))
    assert found.with_one(found.each[-1]) == found


def test_those_before_the_branch_began_anew_are_dropped() -> None:
    told = some((0, 2), (7, 9)).as_property()
    assert [each.until for each in Discards.of(told | {begin_property("ingest"): "8"}, "s").forgotten] == [9]
    assert Discards.of(told | {begin_property("ingest"): "9"}, "s").forgotten == ()


def test_what_an_earlier_version_wrote_is_read() -> None:
    (key, text), *_ = some((0, 2)).as_property().items()
    said = json.loads(text)
    del said["forgotten"]
    found = Discards.of({key: json.dumps(said)}, "s")
    assert (len(found.each), found.forgotten) == (MOST_KEPT, ())
    assert Discards.of(found.as_property(), "s") == found
