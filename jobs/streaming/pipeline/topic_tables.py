"""Tables of topics: the destination of each topic's records, for a route whose tables have their own columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.route import Route
from jobs.config.stream.topic_route import (
    TopicValue,
    entries_of,
    topic_values,
    two_tables,
)
from jobs.config.values.targets import named_table
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.problems import EXPRESSION_FAILED, UNROUTED
from jobs.streaming.pipeline.route_naming import (
    NO_TABLE,
    Naming,
    NamingState,
    naming_state,
)


class TopicTable(NamedTuple):
    """Destination of a topic's records.

    Attributes:
        table: The table; None without one.
        value: Value that decides.
        refused: Reason why they go to none, as the message of their dead letters.
        error_class: Error class of these dead letters.
        unmade: Whether the reason is that the table cannot be created yet.
    """

    table: str | None
    value: str | None = None
    refused: str = ""
    error_class: str = UNROUTED
    unmade: bool = False


def topic_tables(
    spec: StreamSpec,
    topics: Iterable[str],
    there: Collection[str],
    naming: NamingState | None = None,
    unmade: Mapping[str, str] | None = None,
) -> dict[str, TopicTable]:
    """Destinations of topics' records: one table, which may have to be created, or none.

    Args:
        spec: The stream with its known tables.
        topics: Topics of its source.
        there: Names of the stream's existing tables.
        naming: Decisions about values without a table; None if the route names none by values.
        unmade: Reason by table why it cannot be created now.

    Raises:
        FrazilError: A topic would go to two tables.
    """
    route = spec.route
    if route is None:
        raise TypeError("a stream without a route has one table")
    names = Naming(route, there, naming) if naming is not None and route.to is not None else None
    found: dict[str, TopicTable] = {}
    for topic, value in topic_values(route, topics).items():
        entries = entries_of(route, value.value)
        if len(entries) > 1:
            fix = f"correct route.tables in streams/{spec.stream}.yaml"
            raise FrazilError(f"stream {spec.stream}: {two_tables(route, topic, entries)}.", fix=fix)
        here = _of(route, value, route.tables[entries[0]].table if entries else None, names)
        if here.table is not None and here.table not in there and (why := (unmade or {}).get(here.table)):
            here = TopicTable(None, here.value, f"needs a table, and {here.table} is not made yet: {why}", unmade=True)
        found[topic] = here
    return found


def _of(route: Route, value: TopicValue, entry: str | None, names: Naming | None) -> TopicTable:
    """The table of a topic; `entry` is the table of a matching entry."""
    if value.failure is not None:
        return TopicTable(None, None, value.failure, EXPRESSION_FAILED)
    if entry is not None:
        return TopicTable(entry, value.value)
    wanted = NO_TABLE
    if names is not None and value.value is not None and route.to is not None:
        named = names.of(value.value)
        if named.refused is None:
            return TopicTable(named.table or named_table(route.to, value.value), value.value)
        wanted = named.refused
    if route.unmatched_table is not None:
        return TopicTable(route.unmatched_table, value.value)
    shown = "null" if value.value is None else repr(value.value)
    return TopicTable(None, value.value, f"needs a topic that {wanted}, found {shown}")


def of_table(spec: StreamSpec, name: str) -> StreamSpec:
    """The stream as it makes the rows of one of its tables, if its file lists topics for them."""
    made = spec.for_table(name)
    if not spec.own_columns or spec.source.topics is None:
        return made
    there = {*spec.target_names, name}
    found = topic_tables(spec, spec.source.topics, there, naming_state(spec, {}, decided=False))
    topics = tuple(topic for topic in spec.source.topics if found[topic].table == name)
    return made.model_copy(update={"source": spec.source.model_copy(update={"topics": topics})})


def columns_by_topic(spec: StreamSpec, load: Callable[[str], Table | None]) -> Callable[[str], ResolvedSchema | None]:
    """Function that returns the columns of a topic's records, so that masks apply to every name of a column.

    If the tables share the columns of one, they are that table's.

    Args:
        spec: The stream with its known tables.
        load: Loads one of its tables; None if it does not exist.

    Returns:
        Function of a topic. It returns None if its records go to no table or to a missing one; then the file may
        declare the columns. It raises FrazilError if the topic would go to two tables.
    """
    known: dict[str, ResolvedSchema | None] = {}
    there = {each.name for each in spec.targets if each.role == "rows"}

    def of(topic: str) -> ResolvedSchema | None:
        name: str | None = spec.table.name
        if spec.own_columns:
            name = topic_tables(spec, [topic], there, naming_state(spec, {}, decided=False))[topic].table
        if name is None or name not in there:
            return None
        if name not in known:
            table = load(name)
            known[name] = table and spec.for_table(name).resolved_for(table.schema(), table.properties)
        return known[name]

    return of
