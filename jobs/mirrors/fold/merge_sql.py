"""SQL of a merge, as text: into a branch of the mirror, narrowed to where its changes can be."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType, TimestampType, TimestamptzType

from jobs.config.settings.settings import Settings
from jobs.mirrors.fold.fold import DELETE, FOLD_COLUMN, FROM_TARGET_COLUMN, REFOLD_COLUMN, UPSERT
from jobs.mirrors.fold.row_filter import FILTERED_COLUMN, PROBLEM_COLUMN, UNJUDGED_COLUMN
from jobs.mirrors.model.merge_plan import DELETED_COLUMN, ORDER_COLUMN, Deletes, TruncateFloor
from jobs.quality.incremental_scan.offset_ranges import quoted_name, quoted_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SET_COLUMN = "_set"
"""Of a folded row: whether it holds whatever the order of the mirror's row, as it was folded from all changes.

Null if it was folded again from the changes that are left: it holds unless the mirror's row is later.
"""
LONGEST_BOUND = 200


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The least and the greatest value of a key's column among the changes.

    Attributes:
        column: Its name.
        least, greatest: Values of Python; not null.
    """

    column: str
    least: Any
    greatest: Any


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of the mirror's partitions that changes fall into.

    Attributes:
        function: Iceberg's, by its name in Spark.
        count: Of all.
        column: The key's column by which they are made.
        touched: Numbers of those with changes.
    """

    function: str
    count: int
    column: str
    touched: tuple[int, ...]


def table_path(settings: Settings, table: Table) -> str:
    """A table in the SQL of Spark."""
    return ".".join(quoted_name(part) for part in (settings.catalog.name, *table.name()))


def branch_path(table: str, branch: str) -> str:
    """A branch of a table in the SQL of Spark.

    Args:
        table: Quoted already, with its catalog.
    """
    return f"{table}.{quoted_name(f'branch_{branch}')}"


def where_changes_are(alias: str, ranges: Sequence[KeyRange], buckets: Buckets | None) -> str:
    """A condition that only rows of the mirror fulfil which a change may meet, so that others are not read."""
    conditions = []
    for each in ranges:
        bounds = literal(each.least), literal(each.greatest)
        if None not in bounds:
            conditions.append(f"{alias}.{quoted_name(each.column)} BETWEEN {bounds[0]} AND {bounds[1]}")
    if buckets is not None and len(buckets.touched) < buckets.count:
        listed = ", ".join(map(str, buckets.touched))
        conditions.append(f"{buckets.function}({buckets.count}, {alias}.{quoted_name(buckets.column)}) IN ({listed})")
    return " AND ".join(conditions) or "true"


def literal(value: object) -> str | None:
    """A value in the SQL of Spark; None if a bound of its kind is not used."""
    match value:
        case bool() | float():
            return None
        case int():
            return f"{value}L"
        case str():
            return quoted_text(value) if len(value) <= LONGEST_BOUND else None
        case datetime():
            zone = "" if value.tzinfo else "_NTZ"
            return f"TIMESTAMP{zone}'{value.isoformat()}'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case _:
            return None


def merge_sql(
    target: str,
    source: str,
    key: Sequence[str],
    columns: Sequence[str],
    *,
    deletes: Deletes,
    kept: Collection[str],
    narrowed: str,
) -> str:
    """The MERGE of folded rows.

    Args:
        target: The branch of the mirror.
        source: A view of folded rows, one for each key.
        key, columns: Names.
        kept: Columns of which some row takes the value of the mirror's.
        narrowed: What `where_changes_are` gives for `t`.
    """
    same = " AND ".join(f"t.{quoted_name(name)} = s.{quoted_name(name)}" for name in key)
    orders = f"s.{ORDER_COLUMN}", f"coalesce(t.{ORDER_COLUMN}, '')"
    newer = f"(coalesce(s.{SET_COLUMN}, {' >= '.join(orders)}) OR {' > '.join(orders)})"
    values = {name: f"s.{quoted_name(name)}" for name in columns}
    for name in kept:
        listed = f"array_contains(s.{FROM_TARGET_COLUMN}, {quoted_text(name)})"
        values[name] = f"CASE WHEN {listed} THEN t.{quoted_name(name)} ELSE s.{quoted_name(name)} END"
    inserted = {name: f"s.{quoted_name(name)}" for name in columns}
    more = {ORDER_COLUMN: f"s.{ORDER_COLUMN}"} | ({DELETED_COLUMN: "false"} if deletes == "soft" else {})
    gone = (
        f"UPDATE SET t.{DELETED_COLUMN} = true, t.{ORDER_COLUMN} = s.{ORDER_COLUMN}" if deletes == "soft" else "DELETE"
    )
    assigned = ", ".join(f"t.{quoted_name(name)} = {value}" for name, value in (values | more).items())
    names = ", ".join(map(quoted_name, inserted | more))
    return (
        f"MERGE INTO {target} t USING {source} s ON {same} AND {narrowed}\n"
        f"WHEN MATCHED AND s.{FOLD_COLUMN} = '{DELETE}' AND {newer} THEN {gone}\n"
        f"WHEN MATCHED AND s.{FOLD_COLUMN} = '{UPSERT}' AND {newer} THEN UPDATE SET {assigned}\n"
        f"WHEN NOT MATCHED AND s.{FOLD_COLUMN} = '{UPSERT}' THEN INSERT ({names}) "
        f"VALUES ({', '.join((inserted | more).values())})"
    )


def floor_sql(target: str, topic_floors: Sequence[TruncateFloor], deletes: Deletes) -> str:
    """The removal of rows that a truncate took, those without an order among them: they were there before all changes.

    Args:
        target: The branch of the mirror, all of whose changes come from one topic.
        topic_floors: One at least.
    """
    below = f"{ORDER_COLUMN} IS NULL OR {below_floors(topic_floors)}"
    if deletes == "hard":
        return f"DELETE FROM {target} WHERE {below}"
    return f"UPDATE {target} SET {DELETED_COLUMN} = true WHERE ({below}) AND NOT coalesce({DELETED_COLUMN}, false)"


def below_floors(floors: Sequence[TruncateFloor]) -> str:
    """The condition that a row is older than a truncate, by its order; null of a row without one.

    Args:
        floors: One at least.
    """
    return " OR ".join(f"{ORDER_COLUMN} < {quoted_text(each.token)}" for each in floors)


_RANGED = (IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType)
_BUCKETED = (IntegerType, LongType, StringType, DateType)


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """What folded rows are.

    Attributes:
        rows: How many keys.
        deletes, filtered: Of these, those that are deleted, and those of them that do not fulfil the filter.
        unjudged: Of these, those of which the filter reads a value that stands elsewhere.
        refold: Of these, those with a value that is neither here nor in the mirror's row.
        from_target: Of these, those with a value that stands in the mirror's row.
        removed: The greatest order of a key that is deleted; empty without one.
        kept: Columns of which some row has its value in the mirror's row.
        problem: Why the filter has no answer for a row; None if it always has.
        ranges, buckets: Where the rows are in the mirror.
    """

    rows: int
    deletes: int
    filtered: int
    unjudged: int
    refold: int
    from_target: int
    removed: str
    kept: tuple[str, ...]
    problem: str | None
    ranges: tuple[KeyRange, ...]
    buckets: Buckets | None


def merge_facts(folded: DataFrame, key: Sequence[str], mirror: Table, catalog: str) -> MergeFacts:
    """What folded rows are, in one job of Spark.

    Args:
        mirror: With the types of the key's columns, and its partitions.
        catalog: Its name in Spark.
    """
    from pyspark.sql import functions as sql

    kinds = {name: mirror.schema().find_type(name) for name in key}
    ranged = [name for name, kind in kinds.items() if isinstance(kind, _RANGED)]
    bucketed = _bucketed(mirror, kinds)
    function = f"{quoted_name(catalog)}.system.bucket"
    asked = [
        sql.count("*").alias("rows"),
        sql.count_if(sql.col(FOLD_COLUMN) == DELETE).alias("deletes"),
        sql.count_if(FILTERED_COLUMN).alias("filtered"),
        sql.count_if(UNJUDGED_COLUMN).alias("unjudged"),
        sql.count_if(REFOLD_COLUMN).alias("refold"),
        sql.max(sql.when(sql.col(FOLD_COLUMN) == DELETE, sql.col(ORDER_COLUMN))).alias("removed"),
        sql.count_if((sql.size(FROM_TARGET_COLUMN) > 0) & (sql.col(FOLD_COLUMN) == UPSERT)).alias("from_target"),
        sql.array_sort(sql.array_distinct(sql.flatten(sql.collect_set(FROM_TARGET_COLUMN)))).alias("kept"),
        sql.max(PROBLEM_COLUMN).alias("problem"),
        *[sql.min(quoted_name(name)).alias(f"least {n}") for n, name in enumerate(ranged)],
        *[sql.max(quoted_name(name)).alias(f"greatest {n}") for n, name in enumerate(ranged)],
    ]
    if bucketed is not None:
        count, name = bucketed
        touched = sql.expr(f"collect_set({function}({count}, {quoted_name(name)}))")
        asked.append(sql.array_sort(touched).alias("touched"))
    found = folded.agg(*asked).toArrow().to_pylist()[0]
    ranges = [KeyRange(name, found[f"least {n}"], found[f"greatest {n}"]) for n, name in enumerate(ranged)]
    return MergeFacts(
        rows=found["rows"],
        deletes=found["deletes"],
        filtered=found["filtered"],
        unjudged=found["unjudged"],
        refold=found["refold"],
        from_target=found["from_target"],
        removed=found["removed"] or "",
        kept=tuple(found["kept"] or ()),
        problem=found["problem"],
        ranges=tuple(ranges) if found["rows"] else (),
        buckets=Buckets(function, bucketed[0], bucketed[1], tuple(found["touched"])) if bucketed else None,
    )


def _bucketed(mirror: Table, kinds: dict[str, IcebergType]) -> tuple[int, str] | None:
    """Buckets of the mirror's partitions, and the column of the key that they are made of."""
    schema = mirror.schema()
    for field in mirror.spec().fields:
        name = schema.find_column_name(field.source_id)
        if isinstance(field.transform, BucketTransform) and name in kinds and isinstance(kinds[name], _BUCKETED):
            return field.transform.num_buckets, name
    return None
