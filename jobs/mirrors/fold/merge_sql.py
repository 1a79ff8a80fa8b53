"""Text of Spark's MERGE into a branch of the mirror, limited to the files that its changes can meet."""

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
"""Flag of a collapsed row: true if it replaces the mirror's row whatever its order, because all changes are in it.

Null if it was collapsed from the remaining changes: it replaces the mirror's row unless that is later.
"""
LONGEST_BOUND = 200


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The least and the greatest value of a key's column among the changes.

    Attributes:
        column: Name of the column.
        least, greatest: Python values; not null.
    """

    column: str
    least: Any
    greatest: Any


@dataclass(frozen=True, slots=True)
class Buckets:
    """The buckets of the mirror's partitions that changes fall into.

    Attributes:
        function: Name of Iceberg's bucket function in Spark.
        count: Number of all buckets.
        column: Column of the key that is bucketed.
        touched: Numbers of the buckets with changes.
    """

    function: str
    count: int
    column: str
    touched: tuple[int, ...]


def table_path(settings: Settings, table: Table) -> str:
    """Return a table's name in Spark's SQL."""
    return ".".join(quoted_name(part) for part in (settings.catalog.name, *table.name()))


def branch_path(table: str, branch: str) -> str:
    """Return a branch's name in Spark's SQL.

    Args:
        table: Quoted name of the table, with its catalog.
    """
    return f"{table}.{quoted_name(f'branch_{branch}')}"


def where_changes_are(alias: str, ranges: Sequence[KeyRange], buckets: Buckets | None) -> str:
    """Return a condition that all rows fulfil which a change may meet, so that Spark reads few others."""
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
    """Return a value as a literal of Spark's SQL; None if bounds of its type are not used."""
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
    """Return the MERGE of collapsed rows.

    Args:
        target: Branch of the mirror.
        source: View of collapsed rows, one for each key.
        key, columns: Names of columns.
        deletes: Whether deleted rows are removed, or stay with `_change_deleted`.
        kept: Columns whose value some rows take from the mirror's row.
        narrowed: Result of `where_changes_are` for `t`.
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
    """Return the SQL that removes truncated rows, including rows without an order, which are older than all changes.

    Args:
        target: Branch of the mirror; all of its changes come from one topic.
        topic_floors: At least one.
        deletes: Whether deleted rows are removed, or stay with `_change_deleted`.
    """
    below = f"{ORDER_COLUMN} IS NULL OR {below_floors(topic_floors)}"
    if deletes == "hard":
        return f"DELETE FROM {target} WHERE {below}"
    return f"UPDATE {target} SET {DELETED_COLUMN} = true WHERE ({below}) AND NOT coalesce({DELETED_COLUMN}, false)"


def below_floors(floors: Sequence[TruncateFloor]) -> str:
    """Return the condition that a row's order is below a truncate's; null for a row without an order.

    Args:
        floors: At least one.
    """
    return " OR ".join(f"{ORDER_COLUMN} < {quoted_text(each.token)}" for each in floors)


_RANGED = (IntegerType, LongType, StringType, DateType, TimestampType, TimestamptzType)
_BUCKETED = (IntegerType, LongType, StringType, DateType)


@dataclass(frozen=True, slots=True)
class MergeFacts:
    """Counts and bounds of collapsed rows.

    Attributes:
        rows: Number of keys.
        deletes: Number of deleted keys.
        filtered: Number of deleted keys whose row does not fulfil the filter.
        unjudged: Number of keys for which the filter reads a value that the collapsed row lacks.
        refold: Number of keys with a value that is neither here nor in the mirror's row.
        from_target: Number of keys with a value that only the mirror's row has.
        removed: Greatest order of a deleted key; empty if none is deleted.
        kept: Columns whose value some rows take from the mirror's row.
        problem: Why the filter cannot be evaluated for a row; None if it always can.
        ranges, buckets: Ranges of the key's columns and buckets of the mirror that the rows fall into.
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
    """Compute the facts of collapsed rows, in one job of Spark.

    Args:
        mirror: Table of the mirror.
        catalog: Name of the catalog in Spark.
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
    """Return the number of buckets in the mirror's partitioning, and the bucketed column of the key."""
    schema = mirror.schema()
    for field in mirror.spec().fields:
        name = schema.find_column_name(field.source_id)
        if isinstance(field.transform, BucketTransform) and name in kinds and isinstance(kinds[name], _BUCKETED):
            return field.transform.num_buckets, name
    return None
