"""Route block of a stream's YAML file: a value of a record decides which tables its row goes to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, StringType, StructType

from jobs.config.documents.base import (
    ChangesRows,
    Problem,
    Problems,
    SpecModel,
)
from jobs.config.documents.validation import suggestion
from jobs.config.stream.table import Table
from jobs.config.values.fields import (
    BranchName,
    Partition,
    PositiveInt,
    TableLocation,
    TableName,
    TableProperties,
)
from jobs.config.values.mask import path_parts
from jobs.config.values.partitioning import SortText
from jobs.config.values.table_columns import TableColumns, TableColumnsField
from jobs.config.values.targets import NameOfTables, value_of_table
from jobs.records.expressions.parser import parse
from jobs.records.expressions.problem import ExpressionProblem
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.sql import asks_of, compiled

TOPIC = "topic"
_COLUMN = "column:"
_HEADER = "header:"
_SQL = "sql:"
_TYPES = (StringType, IntegerType, LongType, BooleanType, DateType)
_NOT_WITH = {
    "publish": ": main gets rows by one table's commit; table.branch goes, and what is on a branch is brought to main "
    "table by table"
}
_TAKEN = "it takes text, int, long, boolean and date"


def _by(value: str) -> str:
    value = value.strip()
    kind = next((each for each in (_COLUMN, _HEADER, _SQL) if value.startswith(each)), "")
    rest = value.removeprefix(kind)
    if not rest.strip():
        raise ValueError("must be a column such as type or payload.type, topic, header:NAME, or an SQL expression")
    if kind == _COLUMN:
        path_parts(rest)
    return value


def _path_of(by: str) -> tuple[str, ...] | None:
    """Return the path of a column; None if the text is none."""
    try:
        return path_parts(by)
    except ValueError:
        return None


def _match(value: object) -> Any:
    if isinstance(value, str):
        try:
            re.compile(value)
        except re.error as problem:
            raise ValueError(f"is no regular expression: {problem}") from None
        return value
    if isinstance(value, list | tuple) and value and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise ValueError("must be a regular expression of whole values, such as 'INS|UPD', or a list of values as text")


def _unmatched(value: object) -> Any:
    if not isinstance(value, dict | UnmatchedTable) and value not in ("dead_letter", "drop", "fail"):
        raise ValueError(f"must be dead_letter, drop, fail or {{table: namespace.name}}; found '{value}'")
    return value


def _on_table_error(value: object) -> Any:
    if value not in ("stop", "park"):
        raise ValueError(f"must be stop or park; found '{value}'")
    return value


OnTableError = Annotated[Literal["stop", "park"], BeforeValidator(_on_table_error)]


class RoutedTable(SpecModel):
    """One table of a route, with what it has of its own; the rest is as the block ``table`` says.

    Args:
        match: Values of the rows: a regular expression of whole values, or a list.
        table: Name of the table.
        partition_by: Partition expressions of a new table. Without it, as ``table.partition_by``.
        properties: Iceberg's table properties of a new table, over ``table.properties``.
        sort_by: Sort order of a new table. Without it, as ``table.sort_by``.
        location: Location of a new table. Without it, the catalog chooses.
        columns: Columns of the rows that the table has. Without it, all.
        branch: Branch that rows go to. Without it, as ``table.branch``.
        on_table_error: As ``route.on_table_error``, for this table.
    """

    example = "{match: refund, table: orders.refunds}"

    match: Annotated[str | tuple[str, ...], BeforeValidator(_match)]
    table: TableName
    partition_by: tuple[Partition, ...] | None = None
    properties: TableProperties = Field(default_factory=dict)
    sort_by: tuple[SortText, ...] | None = None
    location: TableLocation | None = None
    columns: TableColumnsField = None
    branch: BranchName | None = None
    on_table_error: OnTableError | None = None

    @property
    def own_settings(self) -> list[str]:
        """Keys of the table that are set."""
        return sorted(self.model_fields_set - {"match", "table", "on_table_error"})

    def matches(self, value: str) -> bool:
        """Whether a record with this value goes to the table."""
        if isinstance(self.match, tuple):
            return value in self.match
        return re.fullmatch(self.match, value) is not None


class UnmatchedTable(SpecModel):
    """The table of the rows that no other takes.

    Args:
        table: Name of the table for rows that no entry takes.
    """

    example = "{table: orders.others}"

    table: TableName


def _form_of_unmatched(value: object) -> str:
    return "@table" if isinstance(value, dict | UnmatchedTable) else "@word"


Unmatched: TypeAlias = Annotated[
    Annotated[Literal["dead_letter", "drop", "fail"], Tag("@word")] | Annotated[UnmatchedTable, Tag("@table")],
    Discriminator(_form_of_unmatched),
    BeforeValidator(_unmatched),
]


def _hashed(_: Any, route: Route | None) -> Any:
    if route is None:
        return None
    every = [_hashed_entry(each) for each in route.tables]
    unmatched = route.unmatched if route.unmatched in ("drop", "fail") else route.unmatched_table
    # With dynamic tables, the limit decides which rows go to no table.
    named: dict[str, Any] = {"to": route.to, "limit": route.limit} if route.to else {}
    if route.columns is not None:
        named["columns"] = route.columns.written
    return {"by": route.by, "tables": every, "unmatched": unmatched} | named


def _hashed_entry(entry: RoutedTable) -> list[Any]:
    partition_by = None if entry.partition_by is None else list(map(str, entry.partition_by))
    hashed: list[Any] = [entry.match, entry.table, partition_by]
    if entry.columns is not None:
        hashed.append(entry.columns.written)
    if entry.branch is not None:
        hashed.append({"branch": entry.branch})
    return hashed


class Route(SpecModel):
    """Which tables a record's row goes to: each that matches.

    Args:
        by: Value that decides: a column, ``topic``, ``header:NAME`` or an SQL expression. ``column:`` and ``sql:`` in
            front settle doubts.
        tables: The tables, each with the values of its rows.
        to: Name with ``{value}`` of tables that are created as values appear. Entries of ``tables`` go first.
        unmatched: What happens to a row without a table: a dead letter, another table, dropped and counted, or the
            stream stops.
        limit: Most tables of the route.
        columns: Columns of each dynamic table. Without it, all.
        on_table_error: What happens when a table is dropped or refuses its commit: the stream stops, or the table is
            suspended (``park``).
        recreate: Recreates a dropped dynamic table without asking.
    """

    example = "{by: type, tables: [{match: refund, table: orders.refunds}]}"

    by: Annotated[str, AfterValidator(_by)]
    tables: tuple[RoutedTable, ...] = ()
    to: NameOfTables | None = None
    unmatched: Unmatched = "dead_letter"
    limit: PositiveInt = 500
    columns: TableColumnsField = None
    on_table_error: OnTableError = "stop"
    recreate: bool = False

    def _problems(self) -> Problems:
        if not self.tables and self.to is None:
            yield ("tables",), "must name a table at least, or `to` say how tables are named by values"
        if self.recreate and self.to is None:
            yield ("recreate",), "is about dynamic tables, which route.to names; there is no route.to"
        if self.columns is not None and self.to is None:
            said = "is about dynamic tables, which route.to names; there is no route.to: write it in an entry of tables"
            yield ("columns",), said
        if (count := len(self.table_names)) > self.limit:
            yield ("tables",), f"{count:,} tables are more than route.limit, which is {self.limit:,}"

    @property
    def column(self) -> tuple[str, ...] | None:
        """Path of the deciding column; None if the topic or an expression decides."""
        return None if self.by == TOPIC else _path_of(self.by.removeprefix(_COLUMN))

    @property
    def expression(self) -> str | None:
        """The deciding SQL expression; None if the topic or a column decides."""
        if self.by.startswith(_HEADER):
            name = self.by.removeprefix(_HEADER).replace("'", "''")
            return f"header('{name}')"
        if self.by.startswith(_SQL):
            return self.by.removeprefix(_SQL).strip()
        return None if self.by == TOPIC or self.column is not None else self.by

    @property
    def asks(self) -> frozenset[str]:
        """Parts of a record that the expression reads."""
        return asks_of(self.expression) if self.expression else frozenset()

    @property
    def unmatched_table(self) -> str | None:
        """The table of rows that no entry takes."""
        return self.unmatched.table if isinstance(self.unmatched, UnmatchedTable) else None

    @cached_property
    def table_names(self) -> tuple[str, ...]:
        """Tables in the file that rows may go to, in the file's order."""
        names = [each.table for each in self.tables]
        return tuple(dict.fromkeys([*names, self.unmatched_table] if self.unmatched_table else names))

    @cached_property
    def settings(self) -> Mapping[str, RoutedTable]:
        """Entries of tables with their own settings, by name."""
        return {each.table: each for each in reversed(self.tables) if each.own_settings}

    def columns_of(self, table: str) -> TableColumns | None:
        """Return the chosen columns of a table; None for all.

        Args:
            table: Name of the table; neither the main table nor one of late rows.
        """
        if table in self.table_names:
            return own.columns if (own := self.settings.get(table)) is not None else None
        return self.columns if self.to is not None and value_of_table(self.to, table) is not None else None

    def destinations(self, value: str | None) -> tuple[str, ...]:
        """Return the tables in the file for a row of this value; empty if `to` decides, or it is a dead letter."""
        return self.tables_of(
            [] if value is None else [at for at, each in enumerate(self.tables) if each.matches(value)]
        )

    def tables_of(self, entries: Sequence[int]) -> tuple[str, ...]:
        """Return the tables of a row whose value these entries take.

        Args:
            entries: Indices of the entries, ascending.
        """
        if entries:
            return tuple(dict.fromkeys(self.tables[at].table for at in entries))
        return (self.unmatched_table,) if self.unmatched_table else ()


RouteField = Annotated[Route | None, ChangesRows(written=_hashed, unless=None)]


def route_column_problems(route: Route | None, rows: Schema) -> list[Problem]:
    """Returns the problems of the deciding column or expression of a route.

    Args:
        rows: All columns of the rows.
    """
    if route is None:
        return []
    if route.expression is not None:
        return _expression_problems(route.expression, rows)
    if (path := route.column) is None:
        return []
    struct: IcebergType = rows.as_struct()
    for at, name in enumerate(path):
        fields = {each.name: each.field_type for each in struct.fields} if isinstance(struct, StructType) else {}
        if name not in fields:
            near = suggestion(name, fields)
            hint = (
                f"did you mean '{'.'.join([*path[:at], near])}'?" if near else f"known: {', '.join(fields) or 'none'}"
            )
            return [(("route", "by"), f"no column '{'.'.join(path)}' in decode.schema; {hint}")]
        struct = fields[name]
    if not isinstance(struct, _TYPES):
        return [(("route", "by"), f"cannot be a column of type {struct}; {_TAKEN}")]
    return []


def _expression_problems(text: str, rows: Schema) -> list[Problem]:
    try:
        kind = compiled(text, Columns.of(rows)).type
    except TransformProblem as problem:
        return [(("route", "by"), problem.message)]
    if not isinstance(kind, _TYPES):
        return [(("route", "by"), f"cannot be an expression of type {kind}; {_TAKEN}")]
    return []


def expression_text_problems(route: Route) -> list[Problem]:
    """Returns the problems of the deciding expression's text, whatever the columns are."""
    try:
        if route.expression is not None:
            parse(route.expression)
    except ExpressionProblem as problem:
        return [(("route", "by"), str(problem))]
    return []


def route_problems(route: Route | None, table: Table, letters: str, others: Sequence[str]) -> Iterator[Problem]:
    """Yields the problems of a route, given the rest of the file.

    Args:
        route: The route.
        table: Block of the main table.
        letters: Name of the dead-letter table.
        others: Blocks of the file that cannot be combined with a route.
    """
    if route is None:
        return
    said = "is for a stream with one table of rows, and does not go with route yet"
    yield from [((name,), f"{said}{_NOT_WITH.get(name, '')}") for name in others]
    given: set[str] = set()
    for number, each in enumerate(route.tables):
        place = ("route", "tables", number)
        if each.table == letters:
            yield (*place, "table"), "is the table of the stream's dead letters"
        if each.columns is not None and each.table == table.name:
            said_of_own = f"cannot be of {table.name}, the stream's main table, which has all columns"
            yield (*place, "columns"), said_of_own
        elif each.own_settings and each.table == table.name:
            belongs = f"belongs into the block table: {table.name} is the stream's main table"
            yield (*place, each.own_settings[0]), belongs
        if each.own_settings and each.table in given:
            yield (*place, each.own_settings[0]), f"is set for {each.table} in an earlier entry"
        given |= {each.table} if each.own_settings else set()
    if route.to is not None and table.location is not None:
        said = "is the location of one table, and route.to names many; leave the locations to the catalog"
        yield ("table", "location"), said
    if route.unmatched_table == letters:
        yield ("route", "unmatched"), "is the table of the stream's dead letters; write dead_letter"
