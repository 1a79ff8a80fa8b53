"""Usual volume, an expectation of frazil's own: each hour has about as many rows as that hour of the days before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import Any

from jobs.contract.columns import NotEvaluable, find_column
from jobs.contract.outcome import OwnResult
from jobs.contract.seen_rows import Rows, SparkRows

PAST = timedelta(days=7)
LEAST_PAST_DAYS = 3
"""So many days have to have the hour before it is judged."""
MOST_HOURS = 24 * 366
HOUR = timedelta(hours=1)


def usual_volume(
    rows: Rows,
    column: str,
    arguments: Mapping[str, Any],
    past: timedelta,
    earlier: Callable[[datetime, datetime], Mapping[datetime, int]],
) -> OwnResult:
    """Whether each hour has about as many rows as the same hour of the days before.

    The greatest hour goes on, so it may have more rows than usual, but never has too few.

    Args:
        column: The time that counts.
        arguments: `min_ratio`, `max_ratio`: of the median.
        past: How far the days before reach.
        earlier: Rows per hour of the table, without these rows: from the first of two hours to the last.
    """
    counts = _hours(rows, column)
    if not counts:
        return OwnResult(True, 0, None, "no rows")
    least, greatest = min(counts), max(counts)
    before = earlier(least - past, greatest)
    days = max(past // timedelta(days=1), 1)
    first = min([*before, least])
    judged: list[tuple[float, str, bool]] = []
    for number in range(min((greatest - least) // HOUR + 1, MOST_HOURS)):
        hour = greatest - number * HOUR
        same = [at for day in range(1, days + 1) if (at := hour - day * timedelta(days=1)) >= first]
        usual = median([before.get(at, 0) + counts.get(at, 0) for at in same]) if len(same) >= LEAST_PAST_DAYS else 0
        if not usual:
            continue
        now = counts.get(hour, 0) + before.get(hour, 0)
        ratio = now / usual
        low = "min_ratio" in arguments and ratio < arguments["min_ratio"] and hour < greatest
        high = "max_ratio" in arguments and ratio > arguments["max_ratio"]
        said = f"{hour:%Y-%m-%dT%H}:00Z has {now} rows, usually {usual:g} ({ratio:.2f} of it)"
        judged.append((ratio, said, low or high))
    elements = sum(counts.values())
    wrong = [(ratio, said) for ratio, said, bad in judged if bad]
    if wrong:
        worst = sorted(wrong, key=lambda each: abs(each[0] - 1), reverse=True)[:3]
        more = f"; {len(wrong)} hours in all" if len(wrong) > len(worst) else ""
        return OwnResult(False, elements, None, "; ".join(said for _, said in worst) + more)
    if not judged:
        return OwnResult(True, elements, None, f"not judged: fewer than {LEAST_PAST_DAYS} days before have the hour")
    return OwnResult(True, elements, None, judged[0][1])


def _hours(rows: Rows, name: str) -> dict[datetime, int]:
    column = find_column(rows.schema, name)
    if column.kind not in ("timestamp", "timestamptz"):
        raise NotEvaluable(f"column {name} does not hold times, and this expectation is about rows per hour")
    hours: dict[int, int]
    frame = rows.seen({"at": column.in_form("exact")}, {}, None)
    if isinstance(rows, SparkRows):
        from pyspark.sql import functions as sql

        hour = sql.floor(sql.col("at") / sql.lit(3_600_000_000)).alias("hour")
        hours = {row[0]: row[1] for row in frame.dropna().groupBy(hour).count().collect()}
    else:
        hours = (frame["at"].dropna() // 3_600_000_000).value_counts().to_dict()
    return {datetime.fromtimestamp(int(hour) * 3600, UTC): int(count) for hour, count in hours.items()}
