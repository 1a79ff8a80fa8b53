"""Topic routes: routes of which the topic alone says where a record goes, so that it is known before any is decoded.

Each table of such a route may have columns of its own, which a registry or its records say: a block of records is of
one topic, and is decoded by the columns of the table that the topic goes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from jobs.config.documents.base import Location, Problem
from jobs.config.services.maintenance_policy import StreamMaintenance
from jobs.config.steps.steps import Step
from jobs.config.stream.column_problems import (
    partition_problems_of,
    sort_problems_of,
    table_sort_problems_of,
)
from jobs.config.stream.event_time import EventTime, event_time_problems_of
from jobs.config.stream.route import Route, route_column_problems
from jobs.config.stream.source import Source
from jobs.config.stream.stream_targets import table_settings
from jobs.config.stream.table import Table, kafka_columns
from jobs.config.values.decode import Decode
from jobs.config.values.table_columns import TableColumns, kafka_column_said
from jobs.records.schema.identifier_fields import identifier_problem
from jobs.records.schema.kafka_columns import KafkaColumns
from jobs.records.schema.rescued_data import EXTRA_COLUMN
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.frame import Frame
from jobs.records.transforms.path import parse_path
from jobs.records.transforms.sql import compiled, evaluated, failures_of
from jobs.records.transforms.transform import Rows

_TOPIC_COLUMN = "_topic"
_ROUTERS = frozenset({"RegexRouter", "TimestampRouter", "EventRouter"})
_ROUTER_PROPERTIES = frozenset({"route.by.field", "route.topic.replacement"})
# Rows without a column would be none.
_A_COLUMN = Columns.of([NestedField(1, "row", IntegerType(), required=False)])


class TopicValue(NamedTuple):
    """What decides where the records of a topic go.

    Attributes:
        value: As text; None without one.
        failure: Why there is none, where an expression fails.
    """

    value: str | None
    failure: str | None = None


def decided_by_topic(route: Route) -> bool:
    """Whether the topic alone says where a record goes: `topic`, or an expression over nothing but `_topic`."""
    return route.column is None if (text := route.expression) is None else _of_topics_alone(text)


@lru_cache(maxsize=64)
def _of_topics_alone(text: str) -> bool:
    try:
        found = compiled(text, Columns(()))
    except TransformProblem:
        return False
    return set(found.columns) == {_TOPIC_COLUMN} and not found.needs_batch_time


def topic_values(route: Route, topics: Iterable[str]) -> dict[str, TopicValue]:
    """What decides of each topic, of a route that its topics decide."""
    names = list(dict.fromkeys(topics))
    if (text := route.expression) is None or not names:
        return {each: TopicValue(each) for each in names}
    frame = Frame(pa.RecordBatch.from_arrays([pa.array(names, pa.string())], ["topic"]))
    batch = pa.RecordBatch.from_arrays([pa.nulls(len(names), pa.int32())], schema=_A_COLUMN.arrow)
    found = evaluated(compiled(text, _A_COLUMN), Rows(_A_COLUMN, batch, frame))
    failed = {each.row: each.message for each in failures_of(found, text)}
    values = found.values.cast(pa.string()).to_pylist()
    return {each: TopicValue(values[row], failed.get(row)) for row, each in enumerate(names)}


def entries_of(route: Route, value: str | None) -> list[int]:
    """The entries that take a value, the first of each table, ascending."""
    found: dict[str, int] = {}
    for at, each in enumerate(route.tables):
        if value is not None and each.table not in found and each.matches(value):
            found[each.table] = at
    return sorted(found.values())


def two_tables(route: Route, topic: str, entries: Sequence[int]) -> str:
    """The sentence that a topic would go to two tables, of routes whose tables have columns of their own."""
    first, second = (f"route.tables[{at}] ({route.tables[at].table})" for at in entries[:2])
    return (
        f"topic {topic} is taken by {first} and {second}: of tables with columns of their own a topic goes to one, "
        "as their columns may differ; narrow one of the two, or, if each table is to get every record, write by: "
        "\"'all'\" with match: all, and one of the tables as table.name: they all have its columns then"
    )


def topic_route_problems(
    route: Route, source: Source, steps: Sequence[Step], table: Table, decode: Decode, *, shadow: bool
) -> Iterator[Problem]:
    """Gives what does not go with tables that have columns of their own, each with its place in the file.

    Args:
        route: Which its topics decide.
        source: Of the stream.
        steps: Its transforms.
        table: Its own table.
        decode: Where its columns are from.
        shadow: Whether values that their column does not take land as text in a column beside it.
    """
    yield from route_column_problems(route, Schema())
    for number, step in enumerate(steps):
        if step.smt is not None and _changes_topic(step.smt.type, step.smt.properties):
            said = (
                "gives records another topic, and the tables of a route over columns that no file declares are known "
                "by the topic that is read: write it as route.by, such as \"regexp_replace(_topic, '^shop[.]', '')\""
            )
            yield ("transform", number), said
    columns = kafka_columns(table.kafka_columns)
    if lost := [part for part in ("topic", "partition", "offset") if getattr(columns, part) is None]:
        said = "is needed beside a route over columns that no file declares: rows of its tables say where they are from"
        yield ("table", "kafka_columns", lost[0]), said
    yield from _column_problems(route, columns, decode, shadow=shadow)
    for topic, found in topic_values(route, source.topics or ()).items():
        entries = entries_of(route, found.value)
        if len(entries) > 1:
            yield ("route", "tables", entries[1], "match"), two_tables(route, topic, entries)


def _column_problems(route: Route, kafka: KafkaColumns, decode: Decode, *, shadow: bool) -> Iterator[Problem]:
    """What is wrong with the columns that tables have, as far as it is known without their records."""
    for place, columns in chosen_columns(route):
        if decode.of_table is not None:
            yield place, f"does not go with {decode.of_table} 'table': each table says its columns itself"
        elif problem := elsewhere_problem(columns, decode, shadow=shadow, follows=False):
            yield place, problem
        within: Location = ("drop",) if columns.drop is not None else ()
        for number, text in enumerate(columns.drop or columns.keep or ()):
            if parse_path(text)[0] in kafka.names:
                yield (*place, *within, number), kafka_column_said(text)


def _changes_topic(smt: str, properties: Iterable[str]) -> bool:
    name = smt.rpartition(".")[2]
    return name in _ROUTERS or not _ROUTER_PROPERTIES.isdisjoint(properties)


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


def followers_columns_problems(route: Route, decode: Decode, *, shadow: bool) -> Iterator[Problem]:
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
    route: Route | None, every: Schema, table: Table, event_time: EventTime | None, maintenance: StreamMaintenance
) -> Iterator[Problem]:
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


def _path_problems(columns: TableColumns, every: Schema, kafka: KafkaColumns) -> Iterator[Problem]:
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


def _identifier_problems(left: Schema, settings: Table) -> list[Problem]:
    found = (identifier_problem(path, left) for path in settings.identifiers)
    return [((), said) for said in found if said]
