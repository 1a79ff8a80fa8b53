"""Dead letters of suspended tables: records without a failure that wait for a table that takes no commits."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression, EqualTo, NotEqualTo
from pyiceberg.schema import Schema

TABLE_PARKED = "table_parked"
"""Error class of such a dead letter."""
PARKED_STAGE = "commit"
"""Stage of such a dead letter."""
TARGET = "target"
"""Column with the name of the table."""


def for_table(letters: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """Mark dead letters as waiting for a table.

    Args:
        letters: Rows with the columns of `ARROW_SCHEMA`, and possibly more.
    """
    return letters.append_column(pa.field(TARGET, pa.string()), pa.array([table] * letters.num_rows, pa.string()))


def of_parked(columns: Schema) -> BooleanExpression:
    """Filter for dead letters that wait, or waited, for a table; none if the table lacks the column."""
    return EqualTo("error_class", TABLE_PARKED) if "error_class" in columns.column_names else AlwaysFalse()


def not_of_parked(columns: Schema) -> BooleanExpression:
    """Filter for dead letters of records that failed."""
    return NotEqualTo("error_class", TABLE_PARKED) if "error_class" in columns.column_names else AlwaysTrue()
