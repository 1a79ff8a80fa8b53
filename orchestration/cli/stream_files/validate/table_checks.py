"""Checks of a stream's tables beside the main one: dependent tables, and tables with columns of their own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError, first_line
from jobs.clients.catalog.catalog import find_table
from jobs.clients.registry.client import quick_registry
from jobs.clients.registry.failures import NotInRegistryError
from jobs.config.documents.base import field_path
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.shaped_table import misfit_fix
from jobs.config.values.decode import value_subjects
from jobs.quality.schema_checks.adoptable_tables import adoptable_tables
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.streaming.driver.context.source_topics import parked_tables
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.topic_tables import topic_tables
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.schema.followers import follower_names, following
from jobs.tables.commit.schema.opening_columns import (
    OpeningColumns,
    has_landed,
    keeps_decoded,
    opening_columns,
)
from jobs.tables.write.dry_run import check_writable
from jobs.tables.write.table_remaking import is_as_made
from orchestration.cli.stream_files.validate.findings import Finding, Verdict

_SHOWN = 10


def followed_findings(spec: StreamSpec, metadata: TableMetadata) -> tuple[list[Finding], OpeningColumns | None]:
    """Compare a table with the rows of a stream's steps, if the stream's file does not declare all columns.

    Args:
        spec: Spec of the stream, for this table.
        metadata: Metadata of the existing table.

    Returns:
        Findings, none if the table fits; and the columns after the next start, None if only the start knows them.
    """
    name, file = spec.table.name, f"streams/{spec.stream}.yaml"

    def said(verdict: Verdict, sentence: str, fix: str = "") -> Finding:
        return Finding(spec.stream, "table", verdict, sentence, fix)

    if spec.shapes and not keeps_decoded(spec, metadata) and not has_landed(spec, metadata):
        return [], None
    try:
        found = opening_columns(spec, metadata, None)
    except FrazilError as problem:
        return [said("wrong", problem.message, problem.fix or "")], None
    fix, apply = f"correct {file}, or alter table {name}", f"frazil schema apply {spec.stream}"
    if found.problems:
        findings = [said("wrong", f"{field_path(place)}: {problem}", fix) for place, problem in found.problems]
        return findings, found
    findings = [said("wrong", f"table {name}: {why}", misfit_fix(spec, metadata.schema())) for why in found.refused]
    findings += [
        said("wrong", f"table {name}: {each}, which evolve.{each.change} leaves to you", apply)
        for each in found.unasked(spec)
    ]
    if found.changes and not findings:
        changes = "; ".join(map(str, found.changes))
        findings = [said("unchecked", f"table {name} lacks columns of the steps; the next run adds them: {changes}")]
    return findings, found


def check_followers(spec: StreamSpec, own: TableMetadata, catalog: Catalog) -> Iterator[Finding]:
    """Report dependent tables that cannot take the main table's columns. The next start adds missing columns.

    Args:
        spec: Spec of the stream.
        own: Current metadata of the main table.
        catalog: Catalog with the tables.
    """
    if spec.problems_with(own.schema(), own.properties):
        # The check of the main table reports these problems.
        return
    spec = with_named_tables(spec, catalog)
    parked = parked_tables(spec, catalog)
    for name in follower_names(spec):
        if name in parked:
            said = f"table {name} is suspended: it gets the columns of table {spec.table.name} when it is resumed"
            yield Finding(spec.stream, "table", "unchecked", said, f"frazil accept {spec.stream} --unpark {name}")
            continue
        fix = f"correct streams/{spec.stream}.yaml, or alter table {name}"
        try:
            table = find_table(catalog, name)
        except FrazilError as problem:
            yield Finding(spec.stream, "table", "unchecked", problem.message, problem.fix or "")
            continue
        if table is None:
            said = f"table {name} does not exist yet; it is made with the columns of table {spec.table.name}"
            yield Finding(spec.stream, "table", "unchecked", said)
            continue
        try:
            check_writable(name, table.metadata)
            fit = following(spec, own, table.metadata, name)
        except FrazilError as problem:
            yield Finding(spec.stream, "table", "wrong", problem.message, problem.fix or fix)
            continue
        if is_as_made(table.metadata, spec.stream):
            continue
        for each in fit.refused:
            said = f"table {name} cannot take the columns of table {spec.table.name}: {each}"
            yield Finding(spec.stream, "table", "wrong", said, fix)
        if fit.changes and not fit.refused:
            changes = "; ".join(map(str, fit.changes))
            said = f"table {name} lacks columns of table {spec.table.name}; the next run adds them: {changes}"
            yield Finding(spec.stream, "table", "unchecked", said)


def check_adoptable(spec: StreamSpec, catalog: Catalog) -> Iterator[Finding]:
    """Report existing tables that records may name. Until a table is adopted, it gets no rows."""
    try:
        found = list(adoptable_tables(with_named_tables(spec, catalog), catalog))
    except Exception as problem:
        sentence = f"tables that route.to names could not be listed: {first_line(problem)}"
        yield Finding(spec.stream, "table", "unchecked", sentence)
        return
    if not found:
        return
    shown = ", ".join(found[:_SHOWN]) + (f" and {len(found) - _SHOWN:,} more" if len(found) > _SHOWN else "")
    is_one = len(found) == 1
    sentence = (
        f"{'table' if is_one else 'tables'} {shown} {'exists' if is_one else 'exist'} and {'is' if is_one else 'are'} "
        f"not the stream's: records that name {'it' if is_one else 'them'} follow route.unmatched"
    )
    pattern = found[0] if is_one else f"'{found[0].rpartition('.')[0]}.*'"
    yield Finding(
        spec.stream, "table", "warning", sentence, f"frazil schema apply {spec.stream} --adopt {pattern}, if they are"
    )


def check_equality_deletes(spec: StreamSpec, table: Table) -> Iterator[Finding]:
    """Report equality deletes of an earlier writer, which keep audits and replays from reading the table."""
    head = table.metadata.current_snapshot()
    summary = head.summary.additional_properties if head is not None and head.summary is not None else {}
    if count := int(summary.get("total-equality-deletes", 0)):
        name = ".".join(table.name())
        sentence = f"table {name} has {count:,} equality delete{'' if count == 1 else 's'}, which only Spark applies: "
        sentence += "audits, replays and queries cannot read it until they are applied"
        yield Finding(spec.stream, "table", "warning", sentence, f"frazil maintain {name} --only compact")


def check_lane_tables(spec: StreamSpec, settings: Settings, catalog: Catalog | None) -> Iterator[Finding]:
    """Check that the tables of outputs and of listed topics fit their records.

    Args:
        spec: Spec of the stream.
        settings: Settings of the deployment.
        catalog: The catalog; None if it does not exist yet.
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
            said = f"table {name} is suspended: its records are dead letters until it is resumed"
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
    """Check a table that does not exist yet against its topic's newest schema, which would define it."""
    name = spec.table.name
    if spec.decode.schema_source == "table":
        said = f"table {name} is not there, and decode.schema is 'table'"
        yield Finding(
            spec.stream, "table", "wrong", said, f"create table {name}, or correct streams/{spec.stream}.yaml"
        )
        return
    said = f"table {name} does not exist yet; it is made with the columns of its first records"
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
            # `check_registry` reports the registry's problems.
            return
        for at, problem in spec.problems_of(rows, spec.record_columns):
            said = f"{field_path(at)}: {problem}; the columns of table {name} are those of subject {subject}"
            yield Finding(spec.stream, "spec", "wrong", said, f"correct streams/{spec.stream}.yaml")
