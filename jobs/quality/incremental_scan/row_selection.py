"""Row selection of a table, as data: files as they landed, and a condition on a snapshot."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo
from pyiceberg.expressions.parser import parse as parse_condition
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import TimeType, UUIDType

from jobs.base.errors import FrazilError, first_line
from jobs.quality.incremental_scan.increment import Increment
from jobs.quality.incremental_scan.offset_ranges import (
    RangesByPartition,
    quoted_name,
    quoted_text,
    ranges_condition,
    ranges_sql,
)
from jobs.records.schema.row_filters import filter_advice, filter_problem

STREAM_COLUMN = "stream"
EVERY_ROW = AlwaysTrue()
_EVERYTHING = "true"
_SHOWN_RANGES = 20


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Rows of a table.

    Attributes:
        coordinates: The topic, partition and offset columns; None if the table lacks one of them.
        files: Files whose rows count as they landed, whatever became of them since.
        outside: Ranges whose rows in the files do not count, because the scan includes them.
        snapshot_id: Snapshot to scan; None: none.
        condition: Condition on the scanned rows.
        sql: The same in Spark SQL; it also finds the files' rows in the present table.
        branch: Branch of the table with the rows.
    """

    table: Table
    coordinates: tuple[str, str, str] | None
    files: Sequence[DataFile] = ()
    outside: RangesByPartition | None = None
    snapshot_id: int | None = None
    condition: BooleanExpression = EVERY_ROW
    sql: str = _EVERYTHING
    branch: str = MAIN_BRANCH

    @property
    def name(self) -> str:
        """Name of the table."""
        return ".".join(self.table.name())

    @property
    def empty(self) -> bool:
        """Whether it is known to have no rows."""
        return not self.files and self.snapshot_id is None

    @property
    def known_rows(self) -> int | None:
        """Number of rows if the files' metadata have it; None if rows have to be read for that."""
        if self.snapshot_id is not None or self.outside:
            return None
        return sum(each.record_count for each in self.files)

    def rows_at_most(self) -> int:
        """Most rows that may have to be read, by the files' metadata only.

        Raises:
            FrazilError: The table has equality deletes, whose rows are unknown here.
        """
        rows = sum(each.record_count for each in self.files)
        if self.snapshot_id is None:
            return rows
        scan = self.table.scan(self.condition, snapshot_id=self.snapshot_id)
        return rows + sum(each.file.record_count for each in scan.plan_files())


def increment_rows(
    found: Increment, table: Table, coordinates: tuple[str, str, str], stream: str | None
) -> RowSelection:
    """Rows of an incremental scan.

    Args:
        coordinates: Names of the topic, partition and offset columns, if the table has them.
        stream: Stream whose rows count, by their column, if the table also has others'; None: all.
    """
    where = present_coordinates(table, coordinates)
    if found.head is None:
        return RowSelection(table, where)
    if found.found == "table":
        return whole_table(table, coordinates, stream, snapshot_id=found.head.snapshot_id)
    few = sum(map(len, found.ranges.values())) <= _SHOWN_RANGES
    sql = ranges_sql(where, found.ranges) if where and found.ranges and few else _EVERYTHING
    if found.found == "files" or where is None:
        return RowSelection(table, where, found.files, sql=_also_of(stream, sql))
    return RowSelection(
        table,
        where,
        found.files,
        found.ranges,
        found.head.snapshot_id if found.ranges else None,
        _of_stream(stream, ranges_condition(where, found.ranges)),
        _also_of(stream, ranges_sql(where, found.ranges)),
    )


def whole_table(
    table: Table,
    coordinates: tuple[str, str, str],
    stream: str | None,
    *,
    where: str | None = None,
    snapshot_id: int | None = None,
) -> RowSelection:
    """All rows of a snapshot, or those that match a condition.

    Args:
        where: Condition in PyIceberg's filter syntax, such as `day = '2026-01-01'`.
        snapshot_id: Snapshot; None: the head of main.

    Raises:
        FrazilError: The text is no condition on the table's columns.
    """
    head = table.metadata.current_snapshot_id if snapshot_id is None else snapshot_id
    condition = row_condition(table, where) if where else EVERY_ROW
    return RowSelection(
        table,
        present_coordinates(table, coordinates),
        snapshot_id=head,
        condition=_of_stream(stream, condition),
        sql=_also_of(stream, f"({where})" if where else _EVERYTHING),
    )


def row_condition(table: Table, text: str) -> BooleanExpression:
    """Parse a condition on a table's rows in PyIceberg's filter syntax.

    Raises:
        FrazilError: The text is no condition, or not on top-level columns of the table.
    """
    schema, name = table.schema(), ".".join(table.name())
    fix = filter_advice("day = '2026-01-01' and amount > 5", (field.name for field in schema.fields))
    try:
        found = parse_condition(text)
        bound = bind(schema, found, case_sensitive=True)
    except Exception as problem:
        why = filter_problem(text, schema) or first_line(problem)
        raise FrazilError(f"'{text}' is no condition on table {name}: {why}", fix=fix) from None
    top = {field.field_id for field in schema.fields}
    if nested := sorted(extract_field_ids(bound) - top):
        column = schema.find_column_name(nested[0])
        raise FrazilError(f"'{text}': column {column} of table {name} lies within another one", fix=fix)
    named = {schema.find_field(each).name: schema.find_type(each) for each in extract_field_ids(bound)}
    if unread := [name for name, kind in named.items() if isinstance(kind, (UUIDType, TimeType))]:
        raise FrazilError(f"'{text}': column {unread[0]} of table {name} is a uuid or a time of the day", fix=fix)
    return found


def present_coordinates(table: Table, names: tuple[str, str, str]) -> tuple[str, str, str] | None:
    """Columns of the records' coordinates; None if the table lacks one of them."""
    return names if set(names) <= {field.name for field in table.schema().fields} else None


def _of_stream(stream: str | None, condition: BooleanExpression) -> BooleanExpression:
    # PyIceberg's conditions take a column and a value, which a type checker does not see.
    return condition if stream is None else And(condition, EqualTo(STREAM_COLUMN, stream))  # pyright: ignore


def _also_of(stream: str | None, sql: str) -> str:
    if stream is None:
        return sql
    mine = f"{quoted_name(STREAM_COLUMN)} = {quoted_text(stream)}"
    return mine if sql == _EVERYTHING else f"({sql}) AND {mine}"


def rows_sql(selection: RowSelection, catalog: str, condition: str | None) -> str:
    """Spark SQL that shows rows of a selection in the present table.

    Args:
        catalog: The catalog's name.
        condition: Condition on the rows; None: all.
    """
    path = ".".join(
        part if re.fullmatch(r"\w+", part) else quoted_name(part) for part in (catalog, *selection.table.name())
    )
    if selection.branch != MAIN_BRANCH:
        path = f"{path} VERSION AS OF {quoted_text(selection.branch)}"
    parts = [each for each in (condition, selection.sql) if each and each != _EVERYTHING]
    if not parts:
        return f"SELECT * FROM {path}"
    return f"SELECT * FROM {path} WHERE {parts[0] if len(parts) == 1 else ' AND '.join(f'({each})' for each in parts)}"
