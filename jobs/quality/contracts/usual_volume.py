"""Usual volume, one of frazil's own expectations: each hour has about as many rows as on the days before."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any, Literal

from jobs.config.contract.contract_columns import find_column
from jobs.quality.contracts.outcome import OwnResult
from jobs.quality.contracts.seen_rows import Rows, SparkRows

PAST = timedelta(days=7)
GRACE = timedelta(hours=1)
LEAST_PAST_DAYS = 3
"""Number of earlier days that must have the hour before it is judged."""
MOST_HOURS = 24 * 366
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
_EVER = datetime(1970, 1, 1, tzinfo=UTC)

Extent = Literal["new", "between"]
"""Hours to judge.

`new`: the hours since the earlier rows, empty ones included. `between`: the hours from the first to the last of the
rows.
"""


@dataclass(frozen=True, slots=True)
class VolumeBounds:
    """Limits for an hour.

    Attributes:
        least, most: Factors of the median of the same hour on the days before; None: any.
        past: How far back the days before reach.
        grace: Time after the end of an hour until it is over by the clock.
    """

    least: float | None = None
    most: float | None = None
    past: timedelta = PAST
    grace: timedelta = GRACE

    @property
    def window(self) -> timedelta:
        """How far back rows are counted, so that an hour after a silence still has its days before."""
        return 2 * self.past


def usual_volume(
    rows: Rows,
    column: str,
    bounds: VolumeBounds,
    earlier: Callable[[datetime, datetime], Mapping[datetime, int]],
    *,
    now: datetime | None,
    extent: Extent = "new",
) -> OwnResult:
    """Whether each hour has about as many rows as the same hour of the days before, whenever they landed.

    The judged hours are those of the rows, and all from the last hour with earlier rows up to now, as that one was
    unfinished at the last check. Empty hours are among them. An hour can only have too few rows once it is over: if a
    later hour has a row, or by the clock.

    Args:
        column: Column of the time.
        earlier: Returns rows per hour of the table, without these rows, from a first hour to a last.
        now: Present time; None: the clock does not count, so hours after the last row are not judged.
    """
    counts = hours_of(rows, column)
    return judged_hours(counts, bounds, earlier, now=now, extent=extent)


def judged_hours(
    counts: Mapping[datetime, int],
    bounds: VolumeBounds,
    earlier: Callable[[datetime, datetime], Mapping[datetime, int]],
    *,
    now: datetime | None,
    extent: Extent,
) -> OwnResult:
    """As `usual_volume`, for rows that were counted by hour."""
    elements = sum(counts.values())
    present = [_hour(now)] if now is not None else []
    # A time in the future, from a producer's clock, ends no hour.
    own = [each for each in counts if not present or each <= present[0]]
    if not (ends := [*own, *present]):
        return OwnResult(True, 0, None, "no rows")
    end = max(ends)
    # Any later row ends these hours.
    least, greatest = min([*counts, end]), max([*counts, end]) + bounds.past
    before = earlier(least - bounds.window, greatest)
    if extent == "new" and bounds.least is not None:
        begin = max((each for each in before if each <= end), default=None)
        if begin is None:
            # The silence was longer than that, or these are the first rows.
            before = earlier(_EVER, greatest)
        elif begin < least - bounds.past:
            before = earlier(begin - bounds.window, greatest)
    known = Counter(before) + Counter(counts)
    there = sorted(known)
    last = max((each for each in there if not present or each <= present[0]), default=end)
    usual = {
        hour: _usual(hour, known, there, bounds.past)
        for hour in _hours(counts, [each for each in before if each <= end], own, end, extent)
    }
    judged: list[tuple[datetime, float, str, bool]] = []
    for hour, rate in usual.items():
        over = hour < last or (now is not None and hour + HOUR + bounds.grace <= now)
        low, high = bounds.least is not None and over, bounds.most is not None
        if not rate or not (low or high):
            continue
        ratio = known[hour] / rate
        bad = (low and ratio < (bounds.least or 0)) or (high and ratio > (bounds.most or 0))
        said = f"{hour:%Y-%m-%dT%H}:00Z has {known[hour]} rows, usually {rate:g} ({ratio:.2f} of it)"
        judged.append((hour, ratio, said, bad))
    if wrong := [each for each in judged if each[3]]:
        worst = sorted(wrong, key=lambda each: (abs(each[1] - 1), each[0]), reverse=True)[:3]
        more = f"; {len(wrong)} hours in all" if len(wrong) > len(worst) else ""
        return OwnResult(False, elements, None, "; ".join(said for _, _, said, _ in worst) + more)
    if judged:
        return OwnResult(True, elements, None, judged[0][2])
    why = "no hour is over" if any(usual.values()) else f"fewer than {LEAST_PAST_DAYS} days before have the hour"
    return OwnResult(True, elements, None, f"not judged: {why}")


def _hours(
    counts: Mapping[datetime, int], before: Sequence[datetime], own: Sequence[datetime], end: datetime, extent: Extent
) -> list[datetime]:
    """Hours to judge, newest first, at most `MOST_HOURS`."""
    if extent == "between":
        begin, end = (min(own), max(own)) if own else (end, end - HOUR)
    else:
        begin = max(before, default=min(own, default=end + HOUR))
    span = max((end - begin) // HOUR + 1, 0)
    found = {end - number * HOUR for number in range(min(span, MOST_HOURS))} | {*counts}
    return sorted(found, reverse=True)[:MOST_HOURS]


def _usual(hour: datetime, known: Mapping[datetime, int], there: Sequence[datetime], past: timedelta) -> float:
    """Median of the same hour on the days before; 0 if there are too few.

    Days of a silence that lasts until the hour do not count: what has not come for a week is no longer usual.
    """
    place = bisect_left(there, hour)
    if not place:
        return 0
    silent = max(-((there[place - 1] - hour) // DAY), 1)
    days = range(silent, silent + max(past // DAY, 1))
    same = [at for day in days if (at := hour - day * DAY) >= there[0]]
    return median(known.get(at, 0) for at in same) if len(same) >= LEAST_PAST_DAYS else 0


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)


def hours_of(rows: Rows, name: str) -> dict[datetime, int]:
    """Rows by the hour of a column, in UTC; rows without a time are left out.

    Raises:
        NotEvaluable: The column does not hold times.
    """
    column = find_column(rows.schema, name).of_hours()
    hours: Iterable[tuple[Any, Any]]
    frame = rows.seen({"at": column}, {}, None)
    if isinstance(rows, SparkRows):
        from pyspark.sql import functions as sql

        hour = sql.floor(sql.col("at") / sql.lit(3_600_000_000)).alias("hour")
        hours = [(row[0], row[1]) for row in frame.dropna().groupBy(hour).count().collect()]
    else:
        hours = (frame["at"].dropna() // 3_600_000_000).value_counts().to_dict().items()
    return {datetime.fromtimestamp(int(hour) * 3600, UTC): int(count) for hour, count in hours}
