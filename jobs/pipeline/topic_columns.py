"""Columns by which records of topics are matched with masks: those of the table that the records of each go to."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.table import Table

from jobs.formats.decoder_spec import ResolvedSchema
from jobs.pipeline.route_naming import naming_state
from jobs.pipeline.topic_tables import topic_tables
from jobs.spec.models import StreamSpec


def columns_by_topic(spec: StreamSpec, load: Callable[[str], Table | None]) -> Callable[[str], ResolvedSchema | None]:
    """What gives the rows of a topic's records, so that what is masked is so under each name that its column has.

    Of a stream whose tables have the columns of one, they are that one's.

    Args:
        spec: The stream, with the tables that are known.
        load: Gives one of its tables, when it is asked for; None of one that is not there.

    Returns:
        Of a topic its rows; None where its records go to no table, or that is not there: then the file says them, if
        anything does. Raises FrazilError where the topic would go to two tables.
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
