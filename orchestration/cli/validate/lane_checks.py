"""Checks of streams each of whose tables has columns of its own: each table by itself, as far as it is there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from pyiceberg.catalog import Catalog

from jobs.catalog import find_table
from jobs.errors import FrazilError
from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import BadWriterSchema
from jobs.pipeline.route_naming import naming_state
from jobs.pipeline.topic_tables import topic_tables
from jobs.registry.client import quick_registry
from jobs.registry.failures import NotInRegistryError
from jobs.spec.base import field_path
from jobs.spec.decode import value_subjects
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.source_topics import parked_tables
from jobs.write.dry_run import check_writable
from orchestration.cli.validate.findings import Finding
from orchestration.cli.validate.follower_checks import check_followers


def check_lane_tables(spec: StreamSpec, settings: Settings, catalog: Catalog | None) -> Iterator[Finding]:
    """Whether the tables that the file names, and those of topics that it lists, can hold their records.

    Args:
        catalog: None where there is none yet.
    """
    route = spec.route
    if route is None:
        return
    topics = spec.source.topics or ()
    found = topic_tables(spec, topics, {*spec.target_names}, naming_state(spec, {}, decided=False))
    of_topics = {name: topic for topic, each in reversed(list(found.items())) if (name := each.table) is not None}
    parked = frozenset[str]() if catalog is None else parked_tables(spec, catalog)
    for name in dict.fromkeys([*route.table_names, *of_topics]):
        if name == spec.table.name:
            continue
        if name in parked:
            said = f"table {name} is parked: letters keep its records until it is unparked"
            yield Finding(spec.stream, "table", "unchecked", said, f"frazil accept {spec.stream} --unpark {name}")
            continue
        try:
            table = None if catalog is None else find_table(catalog, name)
        except FrazilError as problem:
            yield Finding(spec.stream, "table", "unchecked", problem.message, problem.fix or "")
            continue
        of_table = spec.for_table(name)
        if table is None:
            yield from _new_table(of_table, settings, of_topics.get(name))
            continue
        wrong = [f"{field_path(at)}: {said}" for at, said in of_table.problems_with(table.schema(), table.properties)]
        try:
            check_writable(name, table.metadata)
        except FrazilError as problem:
            wrong.append(problem.message)
        for each in wrong or of_table.disagreements_with(table.schema(), properties=table.properties):
            fix = f"correct streams/{spec.stream}.yaml, or alter table {name}"
            yield Finding(spec.stream, "table", "wrong", f"table {name}: {each}", fix)
        if of_table.tables_follow and catalog is not None:
            yield from check_followers(of_table, table.metadata, catalog)


def _new_table(spec: StreamSpec, settings: Settings, topic: str | None) -> Iterator[Finding]:
    """Whether a table goes with the newest schema of its topic, of which it would be made."""
    name = spec.table.name
    if spec.decode.schema_source == "table":
        said = f"table {name} is not there, and decode.schema is 'table'"
        yield Finding(
            spec.stream, "table", "wrong", said, f"create table {name}, or correct streams/{spec.stream}.yaml"
        )
        return
    said = f"table {name} is not there yet; it is made with the columns of its first records"
    yield Finding(spec.stream, "table", "unchecked", said)
    key, format_ = spec.decode.key, FORMATS[spec.decode.format]
    if settings.registry is None or topic is None or spec.decode.schema_source != "registry":
        return
    if format_.writer_rows is None or (key is not None and key.schema_source != "declared"):
        return
    for subject in value_subjects(spec.decode, [topic]):
        try:
            with closing(quick_registry(settings.registry)) as client:
                rows = format_.writer_rows(client.version(subject).schema.schema, spec.decode.options)
        except NotInRegistryError:
            continue
        except BadWriterSchema as problem:
            said = f"subject {subject} makes no table {name}: {problem.message}"
            yield Finding(spec.stream, "spec", "wrong", said, "register a version that does")
            continue
        except FrazilError:
            # What is wrong with the registry is said once.
            return
        for at, problem in spec.problems_of(rows, spec.record_columns):
            said = f"{field_path(at)}: {problem}; the columns of table {name} are those of subject {subject}"
            yield Finding(spec.stream, "spec", "wrong", said, f"correct streams/{spec.stream}.yaml")
