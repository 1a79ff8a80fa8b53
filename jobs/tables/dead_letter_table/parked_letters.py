"""Letters of parked tables: records that failed for nobody, and wait for one table that takes no commits."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import pyarrow as pa
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, BooleanExpression, EqualTo, NotEqualTo
from pyiceberg.schema import Schema

TABLE_PARKED = "table_parked"
"""The reason of such a letter."""
PARKED_STAGE = "commit"
"""And its stage."""
TARGET = "target"
"""The column that names the table."""


def for_table(letters: pa.RecordBatch, table: str) -> pa.RecordBatch:
    """Letters that wait for a table.

    Args:
        letters: In the columns of `ARROW_SCHEMA`, and of what may stand behind them.
    """
    return letters.append_column(pa.field(TARGET, pa.string()), pa.array([table] * letters.num_rows, pa.string()))


def of_parked(columns: Schema) -> BooleanExpression:
    """Letters that wait for a table, or did; none of a table of letters that does not tell."""
    return EqualTo("error_class", TABLE_PARKED) if "error_class" in columns.column_names else AlwaysFalse()


def not_of_parked(columns: Schema) -> BooleanExpression:
    """Letters of records that failed."""
    return NotEqualTo("error_class", TABLE_PARKED) if "error_class" in columns.column_names else AlwaysTrue()
