"""Rows of a check in the engine that fits: in one table of Arrow where they are few, as a frame of Spark otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from jobs.errors import FrazilError
from jobs.increment.arrow_rows import MOST_BYTES, MOST_ROWS, TooManyRowsError, small_table
from jobs.increment.row_selection import RowSelection
from jobs.increment.spark_rows import rows_to_read_again
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EngineName = Literal["pandas", "spark"]


@dataclass(frozen=True, slots=True)
class RowBound:
    """How many rows are evaluated by pandas at most; what is more goes through Spark.

    Attributes:
        rows: So many.
        size: Bytes of Arrow, as measured.
    """

    rows: int = MOST_ROWS
    size: int = MOST_BYTES


def row_count(rows: pa.Table | DataFrame, selection: RowSelection) -> int:
    """How many rows of a selection there are; Spark reads them only where the files' metadata do not tell it."""
    known = None if isinstance(rows, pa.Table) else selection.known_rows
    return known if known is not None else _count(rows)


def _count(rows: pa.Table | DataFrame) -> int:
    return rows.num_rows if isinstance(rows, pa.Table) else rows.count()  # pyright: ignore[reportReturnType]


def loaded_rows(
    selection: RowSelection,
    columns: Collection[str],
    engine: EngineName | None,
    spark: Callable[[], SparkSession],
    settings: Settings,
    *,
    until: contextlib.ExitStack,
    bound: RowBound,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> pa.Table | DataFrame:
    """The rows of a selection, for pandas or for Spark.

    Args:
        columns: At the top of the table; others are not read.
        engine: None: pandas, unless the rows are more than the bound.
        spark: Starts Spark, or gives the session that runs.
        until: At its end, what Spark keeps for the rows is let go.
        on_rows: Told how many rows were read into memory, as they are.

    Raises:
        FrazilError: pandas was asked for, and the rows are too many; or the engine cannot read the table.
        FileNotFoundError: A file is gone, as happens where snapshots have just expired.
    """
    if engine != "spark":
        try:
            if engine == "pandas" or selection.rows_at_most() <= bound.rows:
                return small_table(selection, columns, most_rows=bound.rows, most_bytes=bound.size, on_rows=on_rows)
        except TooManyRowsError as problem:
            if engine == "pandas":
                raise TooManyRowsError(
                    f"{problem.message}: too many for pandas", fix="check them with --engine spark"
                ) from None
        except (NotImplementedError, ValueError) as problem:
            if "equality" not in str(problem):
                raise
            if engine == "pandas":
                raise FrazilError(
                    f"table {selection.name} has equality deletes, which are read by Spark alone.",
                    fix="check it with --engine spark",
                ) from None
    return rows_to_read_again(selection, columns, spark(), settings, until)
