"""Rows of a check in the engine that fits: in one table of Arrow where they are few, as a frame of Spark otherwise."""

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
    """Paths of columns of a stream's table that hold what `errors.mask` keeps out of dead letters; rather too many.

    Args:
        properties: Of the table; its name mapping tells which further names columns have in records.
        table: Its name; None for the stream's own.
    """
    return tuple(dict.fromkeys(_masked(spec, schema, properties, table or spec.table.name)))


def _masked(spec: StreamSpec, schema: Schema, properties: Mapping[str, str], table: str) -> Iterator[Path]:
    mask, columns = spec.errors.mask, spec.record_columns
    if spec.chain and mask != NO_MASK:
        # A step may have put what is masked under any name.
        yield from ((each.name,) for each in schema.fields if each.name not in spec.kafka_columns.coordinates)
    aliases = aliases_of(schema, properties, table)
    for path in mask.paths:
        yield path
        first = path[0].casefold()
        # A column of another case, or that the table's name mapping lets take the key.
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
    """The columns at the top of a table that rows have to have.

    All of them, where an expectation is about the columns themselves.

    Args:
        beside: Further columns, if the table has them: coordinates, and the time of rows.
    """
    there = [each.name for each in schema.fields]
    if any(each.type.startswith(_OF_THE_TABLE) for each in expectations):
        return frozenset(there)
    named = {name for each in expectations for name in each.columns} | {name for name in beside if name is not None}
    conditions = (each.arguments[_CONDITION] for each in expectations if _CONDITION in each.arguments)
    named |= {name for each in conditions for name in condition_columns(row_condition(each))}
    # Of a column within another one, all of that.
    found = frozenset(there) & (named | {name.partition(".")[0] for name in named})
    # Rows without a column could not be counted.
    return found or frozenset(there[:1])
