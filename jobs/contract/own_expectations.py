"""Expectations of frazil's own: keys that are unique, also against earlier rows, and as many rows per hour as usual."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any

from jobs.contract.columns import NotEvaluable, find_column
from jobs.contract.outcome import MOST_SAMPLES
from jobs.contract.seen_rows import ArrowRows, Rows, SparkRows

if TYPE_CHECKING:
    import pyarrow as pa

PAST = timedelta(days=7)
LEAST_PAST_DAYS = 3
"""So many days have to have the hour before it is judged."""
MOST_HOURS = 24 * 366
HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class OwnResult:
    """What came of an expectation.

    Attributes:
        elements: Rows looked at.
        unexpected: Rows that are not accepted; None where it is about all of them together.
        observed: What was found.
        rows: At most `MOST_SAMPLES` rows: the values of the coordinates and of the columns.
    """

    passed: bool
    elements: int
    unexpected: int | None
    observed: str | None
    rows: tuple[Mapping[str, Any], ...] = ()


def unique_keys(
    rows: Rows,
    names: Sequence[str],
    coordinates: Sequence[str],
    known_keys: Callable[[tuple[str, ...], pa.Table], pa.Table] | None,
) -> OwnResult:
    """Whether no two rows have the same key, and no earlier row has one of them.

    Rows of which a column of the key has no value are left out, as SQL's UNIQUE does.
    """
    for name in names:
        if len(find_column(rows.schema, name).parts) > 1:
            raise NotEvaluable(f"a key is made of columns, and {name} is a field within one")
    found = _counted_keys(rows, names)
    elements, repeated, keys = found
    known = known_keys(tuple(names), keys) if known_keys is not None and keys.num_rows else None
    bad, samples = _rows_with(rows, names, coordinates, repeated, known)
    said = f"{repeated.num_rows} keys more than once"
    said += "; earlier rows were not looked at" if known_keys is None else f", {_count(known)} that earlier rows have"
    return OwnResult(bad == 0, elements, bad, said, tuple(samples))


def _count(table: pa.Table | None) -> int:
    return table.num_rows if table is not None else 0


def _counted_keys(rows: Rows, names: Sequence[str]) -> tuple[int, pa.Table, pa.Table]:
    """Rows with a key, the keys that are there more than once, and all keys, each once."""
    if isinstance(rows, ArrowRows):
        import pyarrow.compute as pc

        grouped = _with_keys(rows.table, names).select(list(names)).group_by(list(names)).aggregate([([], "count_all")])
        counts = grouped.column("count_all")
        total = pc.sum(counts).as_py() or 0
        return total, grouped.filter(pc.greater(counts, 1)).select(list(names)), grouped.select(list(names))
    assert isinstance(rows, SparkRows)
    from pyspark.sql import functions as sql

    columns = [sql.col(f"`{name}`") for name in names]
    grouped = rows.frame.dropna(subset=list(names)).groupBy(*columns).agg(sql.count(sql.lit(1)).alias("__count"))
    table = grouped.toArrow()
    import pyarrow.compute as pc

    counts = table.column("__count")
    total = pc.sum(counts).as_py() or 0
    return total, table.filter(pc.greater(counts, 1)).select(list(names)), table.select(list(names))


def _with_keys(table: pa.Table, names: Sequence[str]) -> pa.Table:
    import pyarrow.compute as pc

    for name in names:
        table = table.filter(pc.is_valid(table.column(name)))
    return table


def _rows_with(
    rows: Rows, names: Sequence[str], coordinates: Sequence[str], repeated: pa.Table, known: pa.Table | None
) -> tuple[int, list[dict[str, Any]]]:
    import pyarrow as pa

    keys = repeated
    if known is not None and known.num_rows:
        both = pa.concat_tables([repeated, known.select(list(names)).cast(repeated.schema)])
        keys = both.group_by(list(names)).aggregate([])
    if not keys.num_rows:
        return 0, []
    wanted = list(dict.fromkeys([*coordinates, *names]))
    if isinstance(rows, ArrowRows):
        bad = _with_keys(rows.table, names).select(wanted).join(keys, list(names), join_type="left semi")
        return bad.num_rows, bad.slice(0, MOST_SAMPLES).to_pylist()
    assert isinstance(rows, SparkRows)
    frame = rows.frame.select(*[f"`{name}`" for name in wanted])
    of_keys = frame.sparkSession.createDataFrame(keys)
    found = frame.join(of_keys, list(names), "left_semi")
    return found.count(), [row.asDict() for row in found.select(*[f"`{name}`" for name in wanted]).limit(5).collect()]


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
