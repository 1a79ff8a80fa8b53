"""Targets of a stream by its file: its own table, its dead letters, and the tables of its route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyiceberg.schema import Schema

from jobs.spec.base import Location
from jobs.spec.column_problems import partition_problems_of, table_sort_problems_of
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.publish import Publish
from jobs.spec.route import Route, route_column_problems
from jobs.spec.table import Table
from jobs.spec.targets import TargetSpec


def stream_targets(
    table: Table, dead_letters: str, publish: Publish | None, route: Route | None, named: Sequence[str] = ()
) -> tuple[TargetSpec, ...]:
    """The tables that a stream commits to, the coordinator first: the stream's own table, routed or not.

    Args:
        table: The stream's own.
        dead_letters: The table of the records that failed.
        publish: The block of that name.
        route: Likewise.
        named: The tables that values have named so far.
    """
    coordinates = kafka_columns(table.kafka_columns).coordinates
    own = TargetSpec(
        *(table.name, "rows", True, table.partition_by, table.properties),
        coordinates=coordinates,
        branch=publish.branch if publish else table.branch,
    )
    names = dict.fromkeys([*(route.table_names if route else ()), *named])
    others = (table_settings(table, route, name) for name in names if name != table.name)
    routed = (
        TargetSpec(*(each.name, "rows", False, each.partition_by, each.properties), coordinates=coordinates)
        for each in others
    )
    return own, TargetSpec(dead_letters, "dead_letters"), *routed


def table_settings(table: Table, route: Route | None, name: str) -> Table:
    """What a file says of a table of rows: as of the stream's own table, but for what the route gives it of its own."""
    if name == table.name:
        return table
    given = route.settings.get(name) if route else None
    own: dict[str, Any] = {"name": name, "location": given.location if given else None}
    if given is not None:
        own["properties"] = {**table.properties, **given.properties}
        own |= {key: value for key in ("partition_by", "sort_by") if (value := getattr(given, key)) is not None}
    return table.model_copy(update=own)


def route_table_problems(route: Route | None, every: Schema, table: Table) -> Iterator[tuple[Location, str]]:
    """Gives what columns a route asks for that rows do not have so, each with its place in the file.

    Args:
        route: The route.
        every: The rows' columns, all of them.
        table: The stream's own.
    """
    yield from route_column_problems(route, every)
    for number, each in enumerate(route.tables if route else ()):
        if each.own_settings and each.table != table.name:
            settings = table_settings(table, route, each.table)
            problems = partition_problems_of(every, settings) if each.partition_by is not None else []
            problems += table_sort_problems_of(every, settings) if each.sort_by is not None else []
            yield from ((("route", "tables", number, *place[1:]), said) for place, said in problems)
