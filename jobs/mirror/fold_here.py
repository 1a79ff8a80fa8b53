"""Fold here: a small increment is folded in this process, without tasks of Spark and their Python workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.manifest import DataFile

from jobs.mirror.fold_tasks import FoldTask, OrderTask
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.merging_session import folded_kinds, optional

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MOST_ROWS = 100_000
MOST_BYTES = 32 * 1024**2
"""Of the files, which are compressed."""
_BYTES_IN_A_TASK = 400_000


def folds_here(files: Sequence[DataFile], changes: DataFrame) -> bool:
    """Whether an increment is small, and Arrow can show this process all that may stand in its rows.

    Args:
        files: Of the increment.
        changes: Their rows, as they are to be folded.
    """
    small = sum(file.record_count for file in files) <= MOST_ROWS
    small = small and sum(file.file_size_in_bytes for file in files) <= MOST_BYTES
    # Arrow views no null of a struct whose fields may not be.
    return small and all(optional(field.dataType) == field.dataType for field in changes.schema.fields)


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
        by_key = pa.Table.from_batches(ordered).sort_by([(name, "ascending") for name in (*fold.key, ORDER_COLUMN)])
        folded = list(fold(by_key.combine_chunks().to_batches()))
    wanted = to_arrow_schema(kinds)
    rows = pa.Table.from_batches(folded).select(wanted.names).cast(wanted) if folded else wanted.empty_table()
    return changes.sparkSession.createDataFrame(rows, kinds)
