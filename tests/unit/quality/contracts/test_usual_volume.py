"""Rows per hour against the days before: hours go on, end, stay empty, and are landed in several increments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jobs.quality.contracts.check_result import CheckedRows, TableCheck
from jobs.quality.contracts.outcome import ExpectationOutcome, OwnResult
from jobs.quality.contracts.usual_volume import (
    GRACE,
    Extent,
    VolumeBounds,
    judged_hours,
)
from tests.helpers.check_world import CheckWorld

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
TODAY = datetime(2026, 6, 20, tzinfo=UTC)
BOTH = VolumeBounds(0.5, 2.0, past=4 * DAY)


def at(hour: int, minute: int = 0, day: int = 0) -> datetime:
    """An instant of today, or of so many days ago."""
    return TODAY - day * DAY + timedelta(hours=hour, minutes=minute)


def usual(days: int = 4, ago: int = 1) -> dict[datetime, int]:
    """Ten rows in each hour of some days, and of today until nine, if the last of them was yesterday."""
    today = {at(hour): 10 for hour in range(9 if ago == 1 else 0)}
    return {at(hour, day=day): 10 for day in range(ago, ago + days) for hour in range(24)} | today


def judged(
    counts: dict[datetime, int],
    earlier: dict[datetime, int],
    bounds: VolumeBounds = BOTH,
    now: datetime | None = None,
    extent: Extent = "new",
) -> OwnResult:
    def between(first: datetime, last: datetime) -> Mapping[datetime, int]:
        return {hour: count for hour, count in earlier.items() if first <= hour <= last}

    return judged_hours(counts, bounds, between, now=now, extent=extent)


LEAST = VolumeBounds(0.5, past=4 * DAY)
MOST = VolumeBounds(None, 2.0, past=4 * DAY)


@pytest.mark.parametrize(
    ("counts", "earlier", "bounds", "passed", "said"),
    [
        # The last hour goes on: it may have too many rows, and not yet too few.
        ({at(9): 10, at(10): 1}, usual(), LEAST, True, "09:00Z has 10 rows, usually 10"),
        ({at(9): 10, at(10): 21}, usual(), BOTH, False, "10:00Z has 21 rows, usually 10 (2.10 of it)"),
        ({at(9): 4, at(10): 10}, usual(), LEAST, False, "09:00Z has 4 rows, usually 10 (0.40 of it)"),
        # The hour that went on when it was checked before is judged once a later one has a row, with all its rows.
        ({at(10): 1}, {**usual(), at(9): 1}, LEAST, False, "09:00Z has 1 rows"),
        ({at(9): 4, at(10): 1}, {**usual(), at(9): 6}, LEAST, True, "09:00Z has 10 rows"),
        ({at(9): 4, at(10): 1}, {**usual(), at(9): 17}, MOST, False, "09:00Z has 21 rows"),
        # What was over then is left alone.
        ({at(10): 1, at(11): 10}, {**usual(), at(8): 1, at(9): 1, at(10): 9}, LEAST, True, "10:00Z has 10 rows"),
        # Hours of an outage have no rows.
        ({at(13): 10, at(14): 1}, {**usual(), at(9): 10}, LEAST, False, "12:00Z has 0 rows, usually 10 (0.00 of it)"),
        ({at(13): 10, at(14): 1}, {**usual(), at(9): 10}, LEAST, False, "10:00Z has 0 rows"),
        # Late rows of an hour before, and nothing else of that day.
        ({at(3): 3, at(11): 1}, {**usual(), at(3): 2, at(4): 1, at(10): 10}, LEAST, True, "10:00Z has 10 rows"),
        ({at(3): 1, at(11): 1}, {**usual(), at(3): 2, at(10): 10}, LEAST, False, "03:00Z has 3 rows"),
        ({at(3): 1}, {**usual(), at(3): 9, at(5): 0, at(10): 10}, LEAST, True, "03:00Z has 10 rows"),
        # Rows of another partition are ahead.
        ({at(9): 1}, {**usual(), at(9): 9, at(10): 5}, LEAST, True, "09:00Z has 10 rows"),
        # Too few days, no rows, no bound that says something of it.
        ({at(9): 1, at(10): 1}, usual(days=2), LEAST, True, "not judged: fewer than 3 days before have the hour"),
        ({at(9): 1, at(10): 1}, usual(days=3), LEAST, False, "09:00Z has 1 rows"),
        ({at(9): 1}, usual(), LEAST, True, "08:00Z has 10 rows"),
        ({at(9): 1}, usual(ago=2), MOST, True, "09:00Z has 1 rows"),
        ({at(9): 1}, {}, LEAST, True, "not judged: fewer than 3 days"),
        ({}, usual(), LEAST, True, "no rows"),
    ],
)
def test_by_later_rows_alone(
    counts: dict[datetime, int], earlier: dict[datetime, int], bounds: VolumeBounds, passed: bool, said: str
) -> None:
    found = judged(counts, earlier, bounds)
    assert (found.passed, found.elements) == (passed, sum(counts.values()))
    assert said in (found.observed or "")


@pytest.mark.parametrize(
    ("counts", "earlier", "now", "passed", "said"),
    [
        # An hour is over an hour after its end, whatever came later.
        ({at(9): 1}, usual(), at(10, 59), True, "08:00Z has 10 rows"),
        ({at(9): 1}, usual(), at(11), False, "09:00Z has 1 rows"),
        # Nothing comes at all.
        ({}, {**usual(), at(9): 10}, at(10, 30), True, "no hour is over"),
        ({}, {**usual(), at(9): 10}, at(11, 59), True, "09:00Z has 10 rows"),
        ({}, {**usual(), at(9): 10}, at(12), False, "10:00Z has 0 rows, usually 10"),
        ({}, {**usual(), at(9): 10}, at(15), False, "4 hours in all"),
        # For so long that no day before it has rows in what is looked at.
        ({}, usual(ago=5), at(9), False, "07:00Z has 0 rows, usually 10"),
        ({}, usual(ago=40), at(9), False, "hours in all"),
        ({at(9): 10}, usual(ago=40), at(9, 30), False, "08:00Z has 0 rows"),
        ({at(9): 10}, {}, at(9, 30), True, "not judged"),
        # A table that never had rows.
        ({}, {}, at(9), True, "not judged"),
        # A clock that is ahead ends no hour, and hides nothing that comes after it.
        ({at(9): 1, at(9, day=-900): 1}, usual(), at(9, 30), True, "08:00Z has 10 rows"),
        ({at(10): 1}, {**usual(), at(9): 1, at(9, day=-900): 1}, at(10, 30), False, "09:00Z has 1 rows"),
    ],
)
def test_by_the_clock(
    counts: dict[datetime, int], earlier: dict[datetime, int], now: datetime, passed: bool, said: str
) -> None:
    found = judged(counts, earlier, LEAST, now)
    assert (found.passed, found.elements) == (passed, sum(counts.values())), found.observed
    assert said in (found.observed or "")


def test_the_days_of_a_silence_are_not_usual() -> None:
    for days in range(1, 30):
        found = judged({at(9): 10, at(10): 1}, usual(ago=days + 1), LEAST, at(10, 30))
        assert not found.passed, f"nothing came for {days} days"
        assert "08:00Z has 0 rows, usually 10" in (found.observed or ""), days


def test_rows_that_come_days_later_have_a_longer_grace() -> None:
    patient = VolumeBounds(0.5, past=4 * DAY, grace=DAY)
    assert judged({}, {**usual(), at(9): 10}, patient, at(23)).passed
    assert not judged({}, {**usual(), at(9): 10}, patient, at(11) + DAY).passed
    assert GRACE == HOUR


def test_between_two_hours_nothing_else_is_judged() -> None:
    earlier = {**usual(), at(15): 10}
    assert judged({at(9): 10, at(11): 10}, {**earlier, at(10): 10}, LEAST, extent="between").passed
    found = judged({at(9): 10, at(11): 10}, earlier, LEAST, extent="between")
    assert "10:00Z has 0 rows" in (found.observed or "") and not found.passed
    assert judged({}, earlier, LEAST, extent="between").observed == "no rows"


# On a real table, check by check.

CONTRACT = {
    "expectations": [
        {"frazil_volume_per_hour_to_be_usual": {"min_ratio": 0.5, "max_ratio": 2, "past": "4d"}, "name": "volume"},
        {"expect_table_row_count_to_be_between": {"min_value": 1}, "name": "some", "severity": "warning"},
        {"expect_column_values_to_not_be_null": {"column": "amount"}, "name": "amount_is_set"},
    ]
}


class VolumeWorld(CheckWorld):
    """Ten rows in each of the hours from 8 to 15 on four days before, which were checked."""

    def __init__(self, home: Path, **more: Any) -> None:
        super().__init__(home, CONTRACT, **more)
        self.end = 0
        self.come([hour for day in range(4, 0, -1) for hour in (at(hour, day=day) for hour in range(8, 16))], 10)

    def come(self, hours: list[datetime], rows: int) -> None:
        times = [hour + timedelta(minutes=n) for hour in hours for n in range(rows)]
        count, self.end = len(times), self.end + len(times)
        self.landed.land((0, self.end - count, self.end), amount=[1.0] * count, at=times, _kafka_timestamp=times)

    def outcomes(self, now: datetime, **options: Any) -> tuple[TableCheck, dict[str, ExpectationOutcome]]:
        found = self.check(now=lambda: now, **options)
        return found, {each.name: each for each in found.outcomes}


@pytest.fixture
def world(tmp_path: Path) -> VolumeWorld:
    return VolumeWorld(tmp_path / "home")


def test_hours_with_a_hundredth_of_the_rows_do_not_pass(world: VolumeWorld) -> None:
    world.outcomes(at(8, 5))
    said = []
    for hour in range(8, 13):
        world.come([at(hour, 20)], 1)
        found, outcomes = world.outcomes(at(hour, 30))
        assert (found.rows, found.recorded) == (1, True)
        said.append((outcomes["volume"].passed, outcomes["volume"].observed))
    # The hour that goes on is told by the next check, with all its rows.
    assert [passed for passed, _ in said] == [True, False, False, False, False], said
    assert "2026-06-20T08:00Z has 1 rows, usually 10" in (said[1][1] or "")
    assert "2026-06-20T11:00Z has 1 rows, usually 10" in (said[4][1] or "")


def test_rows_of_an_hour_in_several_increments_count_together(world: VolumeWorld) -> None:
    world.outcomes(at(8, 5))
    for part in range(5):
        world.come([at(8, 10 * part)], 2)
        _, outcomes = world.outcomes(at(8, 10 * part + 5))
        assert outcomes["volume"].passed
    world.come([at(9)], 1)
    _, outcomes = world.outcomes(at(9, 5))
    assert outcomes["volume"].passed, "all ten are counted"
    world.come([at(8, 40)], 11)
    _, outcomes = world.outcomes(at(9, 6))
    assert "08:00Z has 21 rows" in (outcomes["volume"].observed or "") and not outcomes["volume"].passed


def test_after_an_outage_its_hours_are_told(world: VolumeWorld) -> None:
    world.come([at(8)], 10)
    world.outcomes(at(8, 30))
    world.come([at(12, 10)], 5)
    found, outcomes = world.outcomes(at(12, 15))
    assert not outcomes["volume"].passed and outcomes["amount_is_set"].passed and found.recorded
    assert "11:00Z has 0 rows, usually 10" in (outcomes["volume"].observed or "")
    assert "08:00Z" not in (outcomes["volume"].observed or "")
    world.come([at(12, 20)], 5)
    _, outcomes = world.outcomes(at(12, 30))
    assert outcomes["volume"].passed, "it was told"


def test_where_nothing_comes_that_is_told_and_nothing_else(world: VolumeWorld) -> None:
    world.come([at(8)], 10)
    world.outcomes(at(8, 30))
    before = world.recorded
    for now, passed in ((at(9, 59), True), (at(10, 59), True), (at(11), False), (at(11) + 3 * DAY, False)):
        found, outcomes = world.outcomes(now)
        assert (found.rows, found.engine, found.recorded) == (0, "pandas", False)
        assert set(outcomes) == {"volume", "some"} and found.nothing_new == ("amount_is_set",)
        assert outcomes["volume"].passed is passed, (now, outcomes["volume"].observed)
        assert not outcomes["some"].passed and outcomes["some"].observed == "0"
        assert found.not_recorded == "there is nothing new" and world.recorded == before
    _, outcomes = world.outcomes(at(11), only=["amount_is_set"])
    assert not outcomes


def test_rows_of_a_condition_are_judged_among_themselves(world: VolumeWorld) -> None:
    world.come([at(8), at(9), at(11), at(12)], 10)
    some = CheckedRows("condition", f"_kafka_timestamp < '{at(10).isoformat()}'")
    _, outcomes = world.outcomes(at(23), rows=some, only=["volume"])
    assert outcomes["volume"].passed and "09:00Z has 10 rows" in (outcomes["volume"].observed or "")
    later = CheckedRows("condition", f"_kafka_timestamp >= '{at(9).isoformat()}'")
    _, outcomes = world.outcomes(at(23), rows=later, only=["volume"])
    assert not outcomes["volume"].passed and "10:00Z has 0 rows" in (outcomes["volume"].observed or "")
    nothing = CheckedRows("condition", "_kafka_offset < 0")
    found, outcomes = world.outcomes(at(23), rows=nothing, only=["volume"])
    assert (found.rows, outcomes["volume"].observed) == (0, "no rows")


def test_the_whole_table_is_its_own_past(world: VolumeWorld) -> None:
    world.come([at(8), at(9)], 2)
    world.outcomes(at(9, 30))
    _, outcomes = world.outcomes(at(9, 30), rows=CheckedRows("table"))
    assert not outcomes["volume"].passed and "08:00Z has 2 rows" in (outcomes["volume"].observed or "")
