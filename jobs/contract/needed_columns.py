"""Needed columns of a table: those that a contract's expectations are evaluated on, so that no others are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.schema import Schema

from jobs.spec.contract import Expectation
from jobs.spec.row_condition import condition_columns, row_condition

_CONDITION = "row_condition"
_OF_THE_TABLE = ("expect_table_column", "expect_column_to_exist")


def needed_columns(expectations: Sequence[Expectation], schema: Schema, beside: Iterable[str | None]) -> frozenset[str]:
    """The columns at the top of a table that rows have to have.

    All of them, where an expectation is about the columns themselves.

    Args:
        schema: The table's.
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
