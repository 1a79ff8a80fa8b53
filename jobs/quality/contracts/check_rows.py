"""Rows of a check in the fitting engine: an Arrow table for few rows, a Spark data frame otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.config.contract.contract import Expectation
from jobs.config.contract.row_condition import condition_columns, row_condition
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.mask import NO_MASK
from jobs.quality.incremental_scan.arrow_rows import (
    MOST_BYTES,
    MOST_ROWS,
    TooManyRowsError,
    small_table,
)
from jobs.quality.incremental_scan.row_selection import RowSelection
from jobs.quality.incremental_scan.spark_rows import rows_to_read_again
from jobs.records.schema.name_matching import aliases_of
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.tables.write.data_file_rows import is_of_equality_deletes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EngineName = Literal["pandas", "spark"]


@dataclass(frozen=True, slots=True)
class RowBound:
    """Most rows that pandas evaluates; with more, Spark does.

    Attributes:
        rows: Most rows.
        size: Most bytes in Arrow, as measured.
    """

    rows: int = MOST_ROWS
    size: int = MOST_BYTES


def row_count(rows: pa.Table | DataFrame, selection: RowSelection) -> int:
    """Number of rows of a selection; Spark reads them only if the files' metadata do not have it."""
    known = None if isinstance(rows, pa.Table) else selection.known_rows
    if known is not None:
        return known
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
    """Rows of a selection, for pandas or for Spark.

    Args:
        columns: Top-level columns of the table; others are not read.
        engine: None: pandas, unless the rows exceed the bound.
        spark: Starts Spark, or returns the running session.
        until: Releases what Spark keeps for the rows when it is closed.
        on_rows: Called with the number of rows read into memory, as reading goes on.

    Raises:
        FrazilError: pandas was requested and the rows are too many, or the engine cannot read the table.
        FileNotFoundError: A file is missing, such as after an expiry of snapshots.
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
            if not is_of_equality_deletes(problem):
                raise
            if engine == "pandas":
                raise FrazilError(
                    f"table {selection.name} has equality deletes, which are read by Spark alone.",
                    fix="check it with --engine spark",
                ) from None
    return rows_to_read_again(selection, columns, spark(), settings, until)


Path = tuple[str, ...]


def masked_columns(
    spec: StreamSpec, schema: Schema, properties: Mapping[str, str], table: str | None = None
) -> tuple[Path, ...]:
    """Paths of columns that may hold what `errors.mask` removes from dead letters; in doubt a column counts.

    Args:
        properties: Properties of the table, whose name mapping has further names of columns in records.
        table: Name of the table; None for the main table.
    """
    return tuple(dict.fromkeys(_masked(spec, schema, properties, table or spec.table.name)))


def _masked(spec: StreamSpec, schema: Schema, properties: Mapping[str, str], table: str) -> Iterator[Path]:
    mask, columns = spec.errors.mask, spec.record_columns
    if spec.chain and mask != NO_MASK:
        # A step may have put a masked value under any name.
        yield from ((each.name,) for each in schema.fields if each.name not in spec.kafka_columns.coordinates)
    aliases = aliases_of(schema, properties, table)
    for path in mask.paths:
        yield path
        first = path[0].casefold()
        # A column whose name differs in case, or that the table's name mapping matches with the key.
        yield from ((each.name, *path[1:]) for each in schema.fields if each.name.casefold() == first)
        yield from ((of[0],) for of, names in aliases if first in {name.casefold() for name in names})
    if mask.paths and EXTRA_COLUMN in {each.name for each in schema.fields}:
        yield (EXTRA_COLUMN,)
    if mask.key:
        yield from ((name,) for name in sorted(columns.key_names))
    hidden = {*mask.headers}
    yield from ((each.name,) for each in columns.headers if each.header in hidden)
    if hidden and columns.kafka.headers is not None:
        yield (columns.kafka.headers,)


_CONDITION = "row_condition"
_OF_THE_TABLE = ("expect_table_column", "expect_column_to_exist")


def needed_columns(expectations: Sequence[Expectation], schema: Schema, beside: Iterable[str | None]) -> frozenset[str]:
    """Top-level columns of a table that the expectations need.

    All of them, if an expectation is about the columns themselves.

    Args:
        beside: Further columns, if the table has them: coordinates, and the time of rows.
    """
    there = [each.name for each in schema.fields]
    if any(each.type.startswith(_OF_THE_TABLE) for each in expectations):
        return frozenset(there)
    named = {name for each in expectations for name in each.columns} | {name for name in beside if name is not None}
    conditions = (each.arguments[_CONDITION] for each in expectations if _CONDITION in each.arguments)
    named |= {name for each in conditions for name in condition_columns(row_condition(each))}
    # For a nested column, its whole top-level column.
    found = frozenset(there) & (named | {name.partition(".")[0] for name in named})
    # Rows without a column could not be counted.
    return found or frozenset(there[:1])
