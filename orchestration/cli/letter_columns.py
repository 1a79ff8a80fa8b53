"""Columns by which a letter's record is matched with masks: those of the table that records of its topic go to."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.catalog import Catalog

from jobs.commit.named_tables import with_named_tables
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.pipeline.route_naming import naming_state
from jobs.pipeline.topic_tables import topic_tables
from jobs.spec.models import StreamSpec


def columns_by_topic(spec: StreamSpec, catalog: Catalog) -> Callable[[str], ResolvedSchema | None]:
    """What gives the rows of a topic's records, so that what is masked is so under each name that its column has.

    Of a stream whose tables have the columns of one, they are that one's. Nothing is looked up before it is asked.

    Args:
        spec: The stream, by its file.
        catalog: Where its tables are.

    Returns:
        Of a topic its rows; None where its records go to no table, or that is not there: then the file says them, if
        anything does. Raises FrazilError where the topic would go to two tables.
    """
    known: dict[str, ResolvedSchema | None] = {}
    stream: list[StreamSpec] = []

    def of(topic: str) -> ResolvedSchema | None:
        table = spec.table.name
        if spec.own_columns:
            if not stream:
                stream.append(with_named_tables(spec, catalog))
            there = {each.name for each in stream[0].targets if each.role == "rows"}
            naming = naming_state(stream[0], {}, decided=False)
            found = topic_tables(stream[0], [topic], there, naming)[topic].table
            if found is None or found not in there:
                return None
            table = found
        if table not in known:
            known[table] = _rows(spec, catalog, table)
        return known[table]

    return of


def _rows(spec: StreamSpec, catalog: Catalog, name: str) -> ResolvedSchema | None:
    if not catalog.table_exists(name):
        return None
    table = catalog.load_table(name)
    return spec.for_table(name).resolved_for(table.schema(), table.properties)
