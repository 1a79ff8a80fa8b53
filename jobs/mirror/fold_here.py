"""Fold here: a small increment is folded in this process, without tasks of Spark and their Python workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.fold_tasks import FoldTask, OrderTask
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.merging_session import folded_kinds, optional
from jobs.mirror.sorted_rows import sorted_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MOST_ROWS = 100_000
MOST_BYTES = 32 * 1024**2
"""Of the values: this process and Spark's have several copies of them at once."""
_BYTES_IN_A_TASK = 400_000
_BYTES_IN_A_ROW = 100
"""Beside its texts."""


def folds_here(files: Sequence[DataFile], changes: DataFrame) -> bool:
    """Whether an increment is small, and Arrow can show this process all that may stand in its rows.

    Args:
        files: Of the increment.
        changes: Their rows, as they are to be folded.
    """
    rows = sum(file.record_count for file in files)
    small = rows <= MOST_ROWS and sum(file.file_size_in_bytes for file in files) <= MOST_BYTES
    # Arrow views no null of a struct whose fields may not be.
    small = small and all(optional(field.dataType) == field.dataType for field in changes.schema.fields)
    return small and _bytes(changes, rows) <= MOST_BYTES


def _bytes(changes: DataFrame, rows: int) -> int:
    """How much the values are, about: a file tells what they are when encoded, and a text that each row has is once
    in it.
    """
    from pyspark.sql import functions as sql
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    widths: list[Column] = []
    for field in changes.schema.fields:
        column = sql.col(quoted_name(field.name))
        if isinstance(field.dataType, ArrayType | MapType | StructType):
            widths.append(sql.octet_length(sql.to_json(sql.struct(column))))
        elif isinstance(field.dataType, StringType | BinaryType):
            widths.append(sql.octet_length(column))
    total = sum((sql.coalesce(sql.sum(width.cast("long")), sql.lit(0)) for width in widths), sql.lit(0))
    found = changes.select(total.alias("bytes")).first()
    return rows * _BYTES_IN_A_ROW + (found["bytes"] if found else 0)


def tasks_of(here: pa.Table, cores: int) -> dict[str, str]:
    """A setting of Spark's session: in how many tasks rows of this process go to it, which warns of large ones.

    Args:
        here: The changes.
        cores: Tasks that run at once.
    """
    return {"spark.sql.leafNodeDefaultParallelism": str(max(cores, 1 + here.nbytes // _BYTES_IN_A_TASK))}


def folded_here(changes: DataFrame, here: pa.Table, order: OrderTask, fold: FoldTask) -> DataFrame:
    """The folded rows of an increment: what the tasks make of its changes.

    Args:
        changes: Which `folds_here`.
        here: Their rows.
        order, fold: What tasks of Spark would do with them.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    kinds = folded_kinds(changes, fold.columns)
    ordered = list(order(here.to_batches()))
    folded = list[pa.RecordBatch]()
    if ordered:
        by_key = sorted_rows(pa.Table.from_batches(ordered), (*fold.key, ORDER_COLUMN))
        folded = list(fold(by_key.combine_chunks().to_batches()))
    wanted = to_arrow_schema(kinds)
    rows = pa.Table.from_batches(folded).select(wanted.names).cast(wanted) if folded else wanted.empty_table()
    return changes.sparkSession.createDataFrame(rows, kinds)
