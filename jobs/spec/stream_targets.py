"""Targets of a stream by its file: its own table, its dead letters, the tables of its route, and that of late rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pyiceberg.schema import Schema

from jobs.spec.base import Location
from jobs.spec.column_problems import partition_problems_of, table_sort_problems_of
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.late import LateTable
from jobs.spec.late_tables import LateTables, each_late_problems
from jobs.spec.main_branch import MAIN_BRANCH
from jobs.spec.named_tables import value_of_table
from jobs.spec.publish import Publish
from jobs.spec.route import Route, RoutedTable, route_column_problems
from jobs.spec.table import Table
from jobs.spec.table_columns import LaneColumns
from jobs.spec.targets import TargetSpec
from jobs.transform.columns import Columns


def stream_targets(
    table: Table,
    dead_letters: str,
    publish: Publish | None,
    route: Route | None,
    named: Sequence[str] = (),
    late: LateTables | None = None,
    absent: Collection[str] = (),
) -> tuple[TargetSpec, ...]:
    """The tables that a stream commits to, the coordinator first: the stream's own table, routed or not.

    Those of late rows are the last of them.

    Args:
        table: The stream's own.
        dead_letters: The table of the records that failed.
        publish: The block of that name.
        route: Likewise.
        named: The tables that values have named so far.
        late: The tables of late rows.
        absent: Tables that the file names and that are not made yet, as no record has come for them.
    """
    coordinates = kafka_columns(table.kafka_columns).coordinates
    own = TargetSpec(
        *(table.name, "rows", True, table.partition_by, table.properties),
        coordinates=coordinates,
        branch=publish.branch if publish else table.branch,
    )
    timely = dict.fromkeys(name for name in (*(route.table_names if route else ()), *named) if name not in absent)
    names = dict.fromkeys(name for name in timely if name != table.name)
    behind = dict.fromkeys(late.beside(name) for name in (timely if late.route else (table.name,))) if late else {}
    others = (table_settings(table, route, late, name) for name in names | behind)
    further = (
        TargetSpec(
            *(each.name, "rows", False, each.partition_by, each.properties),
            coordinates=coordinates,
            branch=MAIN_BRANCH if each.name in behind else each.branch,
        )
        for each in others
    )
    return own, TargetSpec(dead_letters, "dead_letters"), *further


def table_settings(table: Table, route: Route | None, late: LateTables | None, name: str) -> Table:
    """What a file says of a table of rows: as of the stream's own table, but for what it is given of its own.

    That of late rows is as the one whose late rows it has, but for what it is given.
    """
    if name == table.name:
        return table
    given: RoutedTable | LateTable | None = route.settings.get(name) if route else None
    if late is not None and (timely := late.table_of(name)) is not None:
        given = late.given
        table = table_settings(table, route, None, timely).model_copy(update={"branch": MAIN_BRANCH})
    own: dict[str, Any] = {"name": name, "location": given.location if given else None}
    if given is not None:
        own["properties"] = {**table.properties, **given.properties}
        chosen = ("partition_by", "sort_by", "branch")
        own |= {key: value for key in chosen if (value := getattr(given, key, None)) is not None}
    return table.model_copy(update=own)


def columns_in(table: Table, route: Route | None, late: LateTables | None, name: str | None, rows: Schema) -> Schema:
    """Which columns of the rows one of their tables has, beside those of Kafka's own.

    Args:
        table: The stream's own.
        route: The block of that name.
        late: The tables of late rows.
        name: Of the table; None of the stream's own.
        rows: The rows' columns.
    """
    if route is None or name is None or name == table.name or (late is not None and late.table_of(name)):
        return rows
    chosen = route.columns_of(name)
    return rows if chosen is None else chosen.of(Columns.of(rows)).schema


def lane_columns(route: Route | None, table: Table, name: str) -> LaneColumns | None:
    """Which columns one of a stream's tables has that have columns of their own; None of all.

    Args:
        route: The block of that name.
        table: The stream's own.
        name: Of the table.
    """
    if route is None or name == table.name or (chosen := route.columns_of(name)) is None:
        return None
    at = next((at for at, each in enumerate(route.tables) if each.table == name and each.columns), None)
    return LaneColumns(chosen, ("route", "columns") if at is None else ("route", "tables", at, "columns"))


def branch_in(table: Table, dead_letters: str, route: Route | None, late: LateTables | None, name: str) -> str:
    """The branch of one of a stream's tables that the stream writes; main of one that its file does not speak of.

    Args:
        table: The stream's own.
        dead_letters: The table of the records that failed.
        route: The block of that name.
        late: The tables of late rows.
        name: Of the table.
    """
    if name == table.name:
        return table.branch
    if route is None or name == dead_letters or (late is not None and late.table_of(name)):
        return MAIN_BRANCH
    if name in route.table_names or (route.to is not None and value_of_table(route.to, name) is not None):
        return table_settings(table, route, late, name).branch
    return MAIN_BRANCH


def route_table_problems(route: Route | None, every: Schema, table: Table) -> Iterator[tuple[Location, str]]:
    """Gives what columns a route asks for that rows do not have so, each with its place in the file.

    Args:
        route: The route.
        every: The rows' columns, all of them.
        table: The stream's own.
    """
    yield from route_column_problems(route, every)
    for number, each in enumerate(route.tables if route else ()):
        # Those that are too few for what is asked of the table are told where they stand.
        if each.own_settings and each.table != table.name and each.columns is None:
            settings = table_settings(table, route, None, each.table)
            yield from _at(("route", "tables", number), _settings_problems(each, settings, every))


def late_table_problems(late: LateTables | None, every: Schema, table: Table) -> Iterator[tuple[Location, str]]:
    """Gives what columns a table of late rows asks for that rows do not have so, each with its place in the file.

    Args:
        late: The tables of late rows.
        every: The rows' columns, all of them.
        table: The stream's own.
    """
    if late is not None and late.route is None:
        settings = table_settings(table, None, late, late.beside(table.name))
        yield from _at(("event_time", "late"), _settings_problems(late.given, settings, every))


def _settings_problems(given: RoutedTable | LateTable, settings: Table, every: Schema) -> list[tuple[Location, str]]:
    problems = partition_problems_of(every, settings) if given.partition_by is not None else []
    return [*problems, *(table_sort_problems_of(every, settings) if given.sort_by is not None else [])]


def _at(place: Location, problems: Sequence[tuple[Location, str]]) -> Iterator[tuple[Location, str]]:
    return (((*place, *within[1:]), said) for within, said in problems)


def late_problems(
    late: LateTables | None,
    table: Table,
    letters: str,
    route: Route | None,
    publish: Publish | None,
) -> list[tuple[Location, str]]:
    """Returns what is wrong with tables of late rows, given the rest of the file.

    Args:
        late: Those tables.
        table: The stream's own.
        letters: The table of its dead letters.
        route: The block of that name.
        publish: Likewise.
    """
    if late is None:
        return []
    place: Location = ("event_time", "late")
    each = each_late_problems(late, letters)
    problems = list(each if late.route else _one_late_problems(late, table, letters, route))
    if publish is not None:
        problems.append((place, "cannot be a table beside publish: late rows would show before anything judged them"))
    elif table.branch != MAIN_BRANCH:
        problems.append((place, "cannot be a table beside table.branch: it would be written to its main"))
    return problems


def _one_late_problems(
    late: LateTables, table: Table, letters: str, route: Route | None
) -> Iterator[tuple[Location, str]]:
    name, place = late.beside(table.name), ("event_time", "late", "table")
    if name == table.name:
        yield place, "is the stream's own table; write land"
    if name == letters:
        yield place, "is the table of the stream's dead letters; write dead_letter"
    if route is not None and name in route.table_names:
        yield place, "is a table of the route, which timely rows go to"
