"""Schema of a new table for a stream's rows: refused where frazil could not maintain it."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.formats.record_columns import RecordColumns
from jobs.schema.identifier_fields import optional_columns, with_identifier_fields
from jobs.schema.spark_types import unread_problem
from jobs.spec.column_problems import identifier_problems_of
from jobs.spec.table import Table


def new_table_schema(
    stream: str,
    table: Table,
    columns: RecordColumns,
    rows: Schema,
    whole: Callable[[Schema, RecordColumns], Schema],
    *,
    maintained: bool,
    shaped: bool,
) -> Schema:
    """The schema of a new table.

    Args:
        stream: Its id.
        columns: Those that are not from the value.
        rows: The columns of values.
        whole: Gives all columns of the table for the two.
        maintained: Whether frazil is to maintain the table.
        shaped: Whether steps change columns that no file declares, so that rows are decoded to others.

    Raises:
        FrazilError: frazil could not maintain it, or the columns of the key are not known.
    """
    if columns.key is not None and not columns.key.is_resolved:
        raise FrazilError(
            f"stream {stream}: the columns of its keys are those of table {table.name}, which is not there yet.",
            fix=f"frazil run {stream}, which creates it",
        )
    if table.force_optional and not shaped:
        rows = optional_columns(rows, table.identifiers)
    schema = whole(rows, columns)
    if maintained and (problem := unread_problem(schema)):
        raise FrazilError(f"stream {stream}: table {table.name} is not made: {problem}.")
    if table.force_optional and shaped:
        kept = ((each,) for each in columns.kafka.names)
        schema = optional_columns(schema, [*table.identifiers, *kept])
    if problems := identifier_problems_of(schema, table):
        said = "; ".join(problem for _, problem in problems)
        raise FrazilError(
            f"stream {stream}: table {table.name} is not made: table.identifier_fields: {said}.",
            fix=f"correct table.identifier_fields in streams/{stream}.yaml",
        )
    return with_identifier_fields(schema, table.identifier_names) if table.identifiers else schema
