"""Merge facts: what is asked of the folded rows before they are merged: how many, where they are, what they lack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import DateType, IcebergType, IntegerType, LongType, StringType, TimestampType, TimestamptzType

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.fold import DELETE, FOLD_COLUMN, FROM_TARGET_COLUMN, REFOLD_COLUMN, UPSERT
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.merge_sql import Buckets, KeyRange
from jobs.mirror.row_filter import FILTERED_COLUMN, PROBLEM_COLUMN, UNJUDGED_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
