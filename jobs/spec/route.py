"""Route block of a stream's YAML file: which of several tables a record's row goes to, by one of its values."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pyiceberg.schema import Schema
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import BooleanType, DateType, IcebergType, IntegerType, LongType, StringType, StructType

from jobs.spec.base import Location, SpecModel, problems_at
from jobs.spec.config_hash import ChangesRows
from jobs.spec.decode import Decode
from jobs.spec.fields import Partition, PositiveInt, TableLocation, TableName, TableProperties
from jobs.spec.mask import path_parts
from jobs.spec.sort_order import SortText
from jobs.spec.table import Table
from jobs.spec.validation import suggestion

TOPIC = "topic"
_COLUMN = "column:"
_TYPES = (StringType, IntegerType, LongType, BooleanType, DateType)
_FURTHER = {
    "header:": "make a column of the header in decode.headers, and route by that column",
    "sql:": "make a column of it by a compute step, and route by that column",
}


def _by(value: str) -> str:
    for prefix, instead in _FURTHER.items():
        if value.startswith(prefix):
            raise ValueError(f"is a column or topic, not {prefix}…; {instead}")
    try:
        path_parts(value.removeprefix(_COLUMN))
    except ValueError:
        raise ValueError(f"must be a column such as type or payload.type, or topic; found '{value}'") from None
    return value.strip()


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
    if value in ("drop", "fail"):
        instead = "errors.tolerance: none stops the stream" if value == "fail" else "name a table for them"
        raise ValueError(f"cannot be {value}: must be dead_letter or {{table: namespace.name}}; {instead}")
    return value


class RoutedTable(SpecModel):
    """One table of a route, with what it has of its own; the rest is as the block ``table`` says.

    Args:
        match: Whole values, as a regular expression, or as a list of texts.
        table: Its name.
        partition_by: Its partitioning when it is created.
        properties: Iceberg's table properties, over those of ``table``; applied when it is created.
        sort_by: The sort order of a new table.
        location: Where a new table lies.
    """

    match: Annotated[str | tuple[str, ...], BeforeValidator(_match)]
    table: TableName
    partition_by: tuple[Partition, ...] | None = None
    properties: TableProperties = Field(default_factory=dict)
    sort_by: tuple[SortText, ...] | None = None
    location: TableLocation | None = None

    @property
    def own_settings(self) -> list[str]:
        """What is given of the table itself."""
        return sorted(self.model_fields_set - {"match", "table"})

    def matches(self, value: str) -> bool:
        """Whether a record with this value goes to the table."""
        if isinstance(self.match, tuple):
            return value in self.match
        return re.fullmatch(self.match, value) is not None


class UnmatchedTable(SpecModel):
    """The table of the rows that no other takes."""

    table: TableName


def _hashed(_: Any, route: Route | None) -> Any:
    if route is None:
        return None
    every = [
        [each.match, each.table, None if each.partition_by is None else list(map(str, each.partition_by))]
        for each in route.tables
    ]
    return {"by": route.by, "tables": every, "unmatched": route.unmatched_table}


class Route(SpecModel):
    """Which tables a record's row goes to: each that matches.

    Args:
        by: The column whose value decides, or ``topic``; ``column:topic`` is the column of that name.
        tables: Those that there are.
        unmatched: What becomes of a record that none of them takes, or without a value: a dead letter, or a row of
            the table that is named.
        limit: The most tables.
    """

    by: Annotated[str, AfterValidator(_by)]
    tables: Annotated[tuple[RoutedTable, ...], Field(min_length=1)]
    unmatched: Annotated[Literal["dead_letter"] | UnmatchedTable, BeforeValidator(_unmatched)] = "dead_letter"
    limit: PositiveInt = 500

    @model_validator(mode="after")
    def _bounded(self) -> Route:
        if (count := len(self.table_names)) > self.limit:
            raise problems_at([(("tables",), f"{count:,} tables are more than route.limit, which is {self.limit:,}")])
        return self

    @property
    def column(self) -> tuple[str, ...] | None:
        """The column that decides, as its names from the top; None where the topic does."""
        return None if self.by == TOPIC else path_parts(self.by.removeprefix(_COLUMN))

    @property
    def unmatched_table(self) -> str | None:
        """The table of the rows that no other takes."""
        return self.unmatched.table if isinstance(self.unmatched, UnmatchedTable) else None

    @cached_property
    def table_names(self) -> tuple[str, ...]:
        """Every table that a row may go to, in the file's order."""
        names = [each.table for each in self.tables]
        return tuple(dict.fromkeys([*names, self.unmatched_table] if self.unmatched_table else names))

    @cached_property
    def settings(self) -> Mapping[str, RoutedTable]:
        """What tables have of their own, by name."""
        return {each.table: each for each in reversed(self.tables) if each.own_settings}

    def destinations(self, value: str | None) -> tuple[str, ...]:
        """The tables that a row of this value goes to; none if its record is a dead letter."""
        if value is not None:
            found = tuple(dict.fromkeys(each.table for each in self.tables if each.matches(value)))
            if found:
                return found
        return (self.unmatched_table,) if self.unmatched_table else ()


RouteField = Annotated[Route | None, ChangesRows(written=_hashed, unless=None)]


def route_column_problems(route: Route | None, rows: Schema) -> list[tuple[Location, str]]:
    """Returns what is wrong with the column that a route asks for.

    Args:
        rows: The rows' columns, all of them.
    """
    if route is None or (path := route.column) is None:
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
        return [(("route", "by"), f"cannot be a column of type {struct}; it takes text, int, long, boolean and date")]
    return []


def route_problems(
    route: Route | None, table: Table, letters: str, decode: Decode, others: Sequence[str]
) -> list[tuple[Location, str]]:
    """Returns what is wrong with a route, given the rest of the file.

    Args:
        route: The route.
        table: The stream's own table.
        letters: The table of its dead letters.
        decode: Where its columns are from.
        others: Blocks that the file has, and that do not go with a route.
    """
    if route is None:
        return []
    said = "is for a stream with one table of rows, and does not go with route yet"
    problems: list[tuple[Location, str]] = [((name,), said) for name in others]
    if not decode.declares_all:
        problems.append((("route",), "needs the columns in decode.schema: no table of a route is altered by records"))
    if table.branch != MAIN_BRANCH:
        problems.append((("table", "branch"), said))
    given: set[str] = set()
    for number, each in enumerate(route.tables):
        place = ("route", "tables", number)
        if each.table == letters:
            problems.append(((*place, "table"), "is the table of the stream's dead letters"))
        if each.own_settings and each.table == table.name:
            belongs = f"belongs into the block table: {table.name} is the stream's own table"
            problems.append(((*place, each.own_settings[0]), belongs))
        if each.own_settings and each.table in given:
            problems.append(((*place, each.own_settings[0]), f"is said of {each.table} in an entry before"))
        given |= {each.table} if each.own_settings else set()
    if route.unmatched_table == letters:
        problems.append((("route", "unmatched"), "is the table of the stream's dead letters; write dead_letter"))
    return problems
