"""Topic routes: routes in which the topic alone decides, so that the table is known before records are decoded.

Each table of such a route may have its own columns, from a registry or its records: a block of records has one topic,
and is decoded with the columns of the topic's table.
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
# Arrow needs a column to count rows.
_A_COLUMN = Columns.of([NestedField(1, "row", IntegerType(), required=False)])


class TopicValue(NamedTuple):
    """Value that decides where the records of a topic go.

    Attributes:
        value: Value as text; None if there is none.
        failure: Error of the expression, if it failed.
    """

    value: str | None
    failure: str | None = None


def decided_by_topic(route: Route) -> bool:
    """Whether the topic alone decides where a record goes: `topic`, or an expression over `_topic` only."""
    return route.column is None if (text := route.expression) is None else _of_topics_alone(text)


@lru_cache(maxsize=64)
def _of_topics_alone(text: str) -> bool:
    try:
        found = compiled(text, Columns(()))
    except TransformProblem:
        return False
    return set(found.columns) == {_TOPIC_COLUMN} and not found.needs_batch_time


def topic_values(route: Route, topics: Iterable[str]) -> dict[str, TopicValue]:
    """Return the deciding value of each topic, for a topic route."""
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
    """Return the indices of the entries that take a value, ascending; of each table only the first."""
    found: dict[str, int] = {}
    for at, each in enumerate(route.tables):
        if value is not None and each.table not in found and each.matches(value):
            found[each.table] = at
    return sorted(found.values())


def two_tables(route: Route, topic: str, entries: Sequence[int]) -> str:
    """Return the sentence about a topic that would go to two tables with their own columns."""
    first, second = (f"route.tables[{at}] ({route.tables[at].table})" for at in entries[:2])
    return (
        f"topic {topic} is taken by {first} and {second}: of tables with columns of their own a topic goes to one, "
        "as their columns may differ; narrow one of the two, or, if each table is to get every record, write by: "
        "\"'all'\" with match: all, and one of the tables as table.name: they all have its columns then"
    )


def topic_route_problems(
    route: Route, source: Source, steps: Sequence[Step], table: Table, decode: Decode, *, shadow: bool
) -> Iterator[Problem]:
    """Yields parts of the file that cannot be combined with tables that have their own columns, each with its place.

    Args:
        route: A topic route.
        source: Block `source` of the stream.
        steps: Transforms of the stream.
        table: Block of the main table.
        decode: Block `decode`, with the origin of the columns.
        shadow: Whether rescued data is kept: values that do not fit their column land as text beside it.
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
    """Yield the problems of tables' chosen columns, as far as they are known without records."""
    for place, columns in chosen_columns(route):
        if decode.of_table is not None:
            yield place, f"does not go with {decode.of_table} 'table': each table has columns of its own"
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
    """Return the chosen columns of a route's tables, each with its place in the file."""
    chosen: list[tuple[Location, TableColumns]] = [
        (("route", "tables", at, "columns"), each.columns)
        for at, each in enumerate(route.tables)
        if each.columns is not None
    ]
    return chosen + ([(("route", "columns"), route.columns)] if route.columns is not None else [])


def elsewhere_problem(columns: TableColumns, decode: Decode, *, shadow: bool, follows: bool) -> str | None:
    """Return the problem of chosen columns if a field may be in another column than its own; None if there is none.

    Args:
        columns: Chosen columns of a table; no file declares the columns of the rows.
        decode: Block `decode`, with the origin of the columns.
        shadow: Whether rescued data is kept: values that do not fit their column land as text beside it.
        follows: Whether the table depends on the main table: a field may get a column there that this table leaves out.
    """
    if shadow:
        said = "does not go with evolve.clash 'shadow', whose texts may be of columns that the table lacks"
        return f"{said}: write dead_letter"
    if decode.unknown_fields != "keep" or columns.leaves_out((EXTRA_COLUMN,)):
        return None
    if columns.drop:
        said = f"would keep fields in {EXTRA_COLUMN} that it leaves out: leave out that column, too"
    elif follows:
        said = f"would lose what is in {EXTRA_COLUMN} once the main table has a column for it: leave out {EXTRA_COLUMN}"
    else:
        return None
    return f"{said}, or say decode.unknown_fields: ignore"


def followers_columns_problems(route: Route, decode: Decode, *, shadow: bool) -> Iterator[Problem]:
    """Yields problems of chosen columns in dependent tables that would lose fields, or keep fields that are left out.

    Args:
        route: A route that rows decide.
        decode: Block `decode`, with the origin of the columns.
        shadow: See `elsewhere_problem`.
    """
    for place, columns in chosen_columns(route):
        if problem := elsewhere_problem(columns, decode, shadow=shadow, follows=True):
            yield place, problem


def chosen_columns_problems(
    route: Route | None, every: Schema, table: Table, event_time: EventTime | None, maintenance: StreamMaintenance
) -> Iterator[Problem]:
    """Yields the problems of chosen columns in a route, each with its place in the file.

    Args:
        route: The route.
        every: Columns of the rows, without Kafka's.
        table: Block of the main table.
        event_time: Block `event_time`.
        maintenance: Block `maintenance`.
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
    """Yield what the file asks of the table and its columns lack, as ends of sentences."""
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
