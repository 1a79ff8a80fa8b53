"""Unique keys, one of frazil's own expectations: no two rows share a key, and no earlier row has one of them.

Keys of an Arrow table are grouped here. Keys of a Spark frame stay in Spark, where large groups go to disk. Only
counts, the least and the greatest key, and a few rows come back.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jobs.config.contract.contract_columns import find_column
from jobs.config.contract.contract_plan import check_key
from jobs.quality.contracts.outcome import MOST_SAMPLES, OwnResult
from jobs.quality.contracts.seen_rows import ArrowRows, Rows, SparkRows
from jobs.quality.incremental_scan.offset_ranges import quoted_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Bounds = Mapping[str, tuple[Any, Any]]
"""Least and greatest value of columns."""
MOST_BROADCAST = 200_000
"""Most keys that are broadcast to the tasks that read the table; with more the table's keys are shuffled."""
_MINE, _THERE = "__mine", "__there"


@dataclass(frozen=True, slots=True)
class EarlierKeys:
    """Keys of the rows' table.

    Attributes:
        known: Returns which of some keys the table has in rows beside the evaluated ones; takes the columns and an
            Arrow table of distinct keys.
        of_table: For rows in Spark: returns a frame of these columns with all rows of the table, the evaluated ones
            included; takes the columns, and bounds outside of which keys do not matter.
    """

    known: Callable[[tuple[str, ...], pa.Table], pa.Table]
    of_table: Callable[[tuple[str, ...], Bounds], DataFrame]


def unique_keys(
    rows: Rows, names: Sequence[str], coordinates: Sequence[str], earlier: EarlierKeys | None, *, hidden: bool = False
) -> OwnResult:
    """Whether no two rows share a key, and no earlier row has one of their keys.

    Rows with a null in a key column are left out, like in SQL's UNIQUE; so is NaN.

    Args:
        hidden: Whether values of the key must not be shown; then they are in no Spark plan either.
    """
    check_key([find_column(rows.schema, name) for name in names])
    wanted = list(dict.fromkeys([*coordinates, *names]))
    if isinstance(rows, ArrowRows):
        return _of_table(rows.table, list(names), wanted, earlier)
    assert isinstance(rows, SparkRows)
    return _of_frame(rows.frame, list(names), wanted, earlier, hidden=hidden)


def comparable_keys(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows with a key whose equal numbers have equal bits: no null, no NaN, and no negative zero."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in names:
        table = table.filter(pc.is_valid(table.column(name)))
        if pa.types.is_floating(table.schema.field(name).type):
            table = table.filter(pc.invert(pc.is_nan(table.column(name))))
            whole = pc.add(table.column(name), pa.scalar(0.0, table.schema.field(name).type))
            table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), whole)
    return table


def _of_table(table: pa.Table, names: list[str], wanted: list[str], earlier: EarlierKeys | None) -> OwnResult:
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = comparable_keys(table.select(wanted), names)
    grouped = rows.select(names).group_by(names).aggregate([([], "count_all")])
    repeated = grouped.filter(pc.greater(grouped.column("count_all"), 1)).select(names)
    known = earlier.known(tuple(names), grouped.select(names)) if earlier is not None and grouped.num_rows else None
    keys = repeated
    if known is not None and known.num_rows:
        both = pa.concat_tables([repeated, known.select(names).cast(repeated.schema)])
        keys = both.group_by(names).aggregate([])
    bad = rows.join(keys, names, join_type="left semi") if keys.num_rows else rows.slice(0, 0)
    said = _sentence(repeated.num_rows, None if earlier is None else known.num_rows if known is not None else 0)
    samples = bad.select(wanted).slice(0, MOST_SAMPLES).to_pylist()
    return OwnResult(bad.num_rows == 0, rows.num_rows, bad.num_rows, said, tuple(samples))


def _sentence(repeated: int, known: int | None) -> str:
    said = f"{repeated} keys more than once"
    return f"{said}; earlier rows were not looked at" if known is None else f"{said}, {known} that earlier rows have"


def _of_frame(
    frame: DataFrame, names: list[str], wanted: list[str], earlier: EarlierKeys | None, *, hidden: bool
) -> OwnResult:
    from pyspark.sql import functions as sql

    rows = frame.select(*map(quoted_name, wanted)).dropna(subset=names)
    mine = rows.groupBy(*map(quoted_name, names)).agg(sql.count(sql.lit(1)).alias(_MINE))
    # Rows of files come through Python, and are used three times here, so they are persisted.
    mine = mine.persist()
    try:
        bounded = () if hidden else names
        ends = [end(quoted_name(name)) for name in bounded for end in (sql.min, sql.max)]
        repeats = sql.col(_MINE) > 1
        counted = mine.agg(
            sql.count(sql.lit(1)), sql.coalesce(sql.sum(_MINE), sql.lit(0)), sql.count(sql.when(repeats, 1)), *ends
        ).first()
        assert counted is not None
        keys, elements, repeated, *least_and_greatest = counted
        known: int | None = None
        judged = mine.withColumn(_THERE, sql.lit(0))
        if earlier is not None:
            pairs = zip(least_and_greatest[::2], least_and_greatest[1::2], strict=True)
            there = earlier.of_table(tuple(names), dict(zip(bounded, pairs, strict=True))).dropna(subset=names)
            if keys <= MOST_BROADCAST:
                there = there.join(sql.broadcast(mine.select(*map(quoted_name, names))), names, "left_semi")
            there = there.groupBy(*map(quoted_name, names)).agg(sql.count(sql.lit(1)).alias(_THERE))
            judged = mine.join(there, names, "left")
        # If the table has no row of a key, such as after a deletion, nothing is known about it.
        more = sql.coalesce(sql.col(_THERE) > sql.col(_MINE), sql.lit(False))
        flagged = judged.where(repeats | more).persist()
        try:
            found = flagged.agg(sql.count(sql.when(more, 1)), sql.coalesce(sql.sum(_MINE), sql.lit(0))).first()
            assert found is not None
            known, bad = found[0] if earlier is not None else None, found[1]
            samples = _rows_of(rows, flagged, names, wanted) if bad else ()
        finally:
            flagged.unpersist()
    finally:
        mine.unpersist()
    return OwnResult(bad == 0, elements, bad, _sentence(repeated, known), samples)


def _rows_of(rows: DataFrame, flagged: DataFrame, names: list[str], wanted: list[str]) -> tuple[Mapping[str, Any], ...]:
    """A few rows with unexpected keys."""
    from pyspark.sql import functions as sql

    few = sql.broadcast(flagged.select(*map(quoted_name, names)).limit(MOST_SAMPLES))
    found = rows.join(few, names, "left_semi").select(*map(quoted_name, wanted)).limit(MOST_SAMPLES)
    # By way of Arrow times keep their zone.
    return tuple(found.toArrow().to_pylist())
