"""Columns that tables of a route have of their own: which they are, and what the file asks of a table without them."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.schema import Schema

from jobs.schema.identifier_fields import identifier_problem
from jobs.schema.kafka_columns import KafkaColumns
from jobs.schema.rescued_data import EXTRA_COLUMN
from jobs.spec.base import Location
from jobs.spec.column_problems import partition_problems_of, sort_problems_of, table_sort_problems_of
from jobs.spec.decode import Decode
from jobs.spec.event_time import EventTime, event_time_problems_of
from jobs.spec.kafka_columns import kafka_columns
from jobs.spec.maintenance_policy import StreamMaintenance
from jobs.spec.route import Route
from jobs.spec.stream_targets import table_settings
from jobs.spec.table import Table
from jobs.spec.table_columns import TableColumns, kafka_column_said
from jobs.transform.columns import Columns, TransformProblem
from jobs.transform.path import parse_path


def chosen_columns(route: Route) -> list[tuple[Location, TableColumns]]:
    """The columns that a route says its tables have of the rows, each with its place in the file."""
    chosen: list[tuple[Location, TableColumns]] = [
        (("route", "tables", at, "columns"), each.columns)
        for at, each in enumerate(route.tables)
        if each.columns is not None
    ]
    return chosen + ([(("route", "columns"), route.columns)] if route.columns is not None else [])


def elsewhere_problem(columns: TableColumns, decode: Decode, *, shadow: bool, follows: bool) -> str | None:
    """What is wrong with columns of a table where a field may be in another column than its own; None if nothing is.

    Args:
        columns: Those that the table has of rows whose columns no file declares.
        decode: Where these are from.
        shadow: Whether values that their column does not take land as text in a column beside it.
        follows: Whether the stream's own table says the columns: a field may get one that this table goes without.
    """
    if shadow:
        said = "does not go with evolve.clash 'shadow', whose texts may be of columns that the table lacks"
        return f"{said}: write dead_letter"
    if decode.unknown_fields != "keep" or columns.leaves_out((EXTRA_COLUMN,)):
        return None
    if columns.drop:
        said = f"would keep fields in {EXTRA_COLUMN} that it leaves out: leave out that column, too"
    elif follows:
        said = f"would lose what is in {EXTRA_COLUMN} once the own table has a column for it: leave out {EXTRA_COLUMN}"
    else:
        return None
    return f"{said}, or say decode.unknown_fields: ignore"


def followers_columns_problems(route: Route, decode: Decode, *, shadow: bool) -> Iterator[tuple[Location, str]]:
    """Gives the columns of tables that follow the own one in which fields would get lost, or be though left out.

    Args:
        route: Of which the rows decide.
        decode: Where their columns are from.
        shadow: As of `elsewhere_problem`.
    """
    for place, columns in chosen_columns(route):
        if problem := elsewhere_problem(columns, decode, shadow=shadow, follows=True):
            yield place, problem


def chosen_columns_problems(
    route: Route | None,
    every: Schema,
    table: Table,
    event_time: EventTime | None,
    maintenance: StreamMaintenance,
) -> Iterator[tuple[Location, str]]:
    """Gives what is wrong with the columns that tables of a route have of their own, each with its place in the file.

    Args:
        route: The route.
        every: The rows' columns, without those of Kafka's own.
        table: The stream's own.
        event_time: The block of that name.
        maintenance: Likewise.
    """
    if route is None:
        return
    chosen: list[tuple[Location, TableColumns, str, Table]] = [
        (
            ("route", "tables", number, "columns"),
            each.columns,
            each.table,
            table_settings(table, route, None, each.table),
        )
        for number, each in enumerate(route.tables)
        if each.columns is not None and each.table != table.name
    ]
    if route.columns is not None:
        chosen.append((("route", "columns"), route.columns, f"each {route.to}", table))
    for place, columns, name, settings in chosen:
        wrong = list(_path_problems(columns, every, kafka_columns(table.kafka_columns)))
        if wrong:
            yield from (((*place, *within), said) for within, said in wrong)
            continue
        left = columns.of(Columns.of(every)).schema
        yield from ((place, said) for said in _lacking(left, name, settings, event_time, maintenance))


def _path_problems(columns: TableColumns, every: Schema, kafka: KafkaColumns) -> Iterator[tuple[Location, str]]:
    key = "drop" if columns.drop is not None else "keep"
    within: Location = ("drop",) if key == "drop" else ()
    own = False
    for number, text in enumerate(columns.drop or columns.keep or ()):
        if parse_path(text)[0] in kafka.names:
            own = True
            yield (*within, number), kafka_column_said(text)
    if own:
        return
    try:
        columns.strictly_of(Columns.of(every))
    except TransformProblem as problem:
        place = tuple(each for each in problem.place if each != key)
        yield (*within, *place), problem.message.replace(" at this step", "")


def _lacking(
    left: Schema, name: str, settings: Table, event_time: EventTime | None, maintenance: StreamMaintenance
) -> Iterator[str]:
    """What the file asks of the table and its columns do not give, as ends of sentences."""
    asked = [
        ("partition_by", partition_problems_of(left, settings)),
        ("sort_by", table_sort_problems_of(left, settings)),
        ("maintenance.compact.sort_by", sort_problems_of(maintenance, left, settings)),
        ("event_time", event_time_problems_of(event_time, kafka_columns(settings.kafka_columns).added_to(left))),
        ("table.identifier_fields", _identifier_problems(left, settings)),
    ]
    for by, problems in asked:
        for _, said in problems:
            told = said.replace(" in decode.schema", " among them")
            yield f"are too few for {name}, of which {by} asks for more: {told}"


def _identifier_problems(left: Schema, settings: Table) -> list[tuple[Location, str]]:
    found = (identifier_problem(path, left) for path in settings.identifiers)
    return [((), said) for said in found if said]
