"""Base frame: the rows of a mirror's base as a frame of Spark, in the columns of ordered changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.base_rows import BASE_COLUMN
from jobs.mirror.errors import NoBaseError
from jobs.mirror.fold import OP_COLUMN
from jobs.mirror.merge_plan import DELETED_COLUMN, ORDER_COLUMN, MergePlan, TruncateFloor
from jobs.mirror.merge_sql import below_floors
from jobs.mirror.row_types import narrowed_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def base_frame(
    session: SparkSession, path: str, mirror: Table, plan: MergePlan, floors: Sequence[TruncateFloor], kinds: StructType
) -> DataFrame:
    """The rows of a base, with `_change_base` true.

    Rows that were there before the table was a mirror are none, as nobody knows what they should be.

    Args:
        path: The mirror in the SQL of Spark.
        floors: Truncates of all topics, behind which no row is left.
        kinds: The columns of ordered changes.

    Raises:
        NoBaseError: The mirror has none that stands for what is gone.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.types import BooleanType, StructField, StructType

    if plan.start is None or plan.start.snapshot_id is None:
        raise NoBaseError(plan.stream, ".".join(mirror.name()))
    rows = session.sql(f"SELECT * FROM {path} VERSION AS OF {plan.start.snapshot_id}")
    rows = rows.where(f"{ORDER_COLUMN} IS NOT NULL")
    if floors:
        rows = rows.where(f"NOT ({below_floors(floors)})")
    op = sql.lit("u")
    if DELETED_COLUMN in rows.columns:
        op = sql.when(sql.expr(f"coalesce({DELETED_COLUMN}, false)"), sql.lit("d")).otherwise(op)
    # A base is read by the schema that it was written with, and lacks what came since.
    names = [name for name in (*plan.columns, ORDER_COLUMN) if name in {*rows.columns}]
    shown = rows.select(
        *[sql.col(quoted_name(name)) for name in names], op.alias(OP_COLUMN), sql.lit(True).alias(BASE_COLUMN)
    )
    return narrowed_to(shown, StructType([*kinds.fields, StructField(BASE_COLUMN, BooleanType())]))


def with_base(ordered: DataFrame, base: DataFrame) -> DataFrame:
    """Ordered changes and the rows of a base, told apart by `_change_base`."""
    from pyspark.sql import functions as sql

    return ordered.withColumn(BASE_COLUMN, sql.lit(False)).unionByName(base)
