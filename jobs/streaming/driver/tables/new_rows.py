"""Columns of a new table that the stream's file does not declare: from a registry's schemas, or the first records."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from jobs.base.errors import FrazilError
from jobs.clients.registry.client import registry_client
from jobs.clients.registry.connection import registry_connection
from jobs.clients.registry.failures import NotInRegistryError
from jobs.clients.registry.lookup import RegistryLookup
from jobs.config.documents.base import Location, field_path
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.decode import key_subjects, value_subjects
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.column_names import ColumnNames, usable_columns
from jobs.records.schema.identifier_fields import optional_columns
from jobs.records.schema.parser import KAFKA_COLUMN_PREFIX
from jobs.streaming.driver.tables.first_records import (
    Part,
    Sample,
    are_keyless,
    first_sample,
    inferred_key,
    inferred_rows,
    may_be_keyless,
    named_rows,
)
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.topic_tables import topic_tables
from jobs.tables.commit.stamp.log_state import LogState, of_topics
from jobs.tables.commit.stamp.offsets import Positions

logger = logging.getLogger(__name__)


class SchemaAwaitedError(FrazilError):
    """No schema is registered yet from which the table could be made.

    Safe: No table was created.
    Next: register a schema, or name `decode.subject`
    """


@dataclass(frozen=True, slots=True)
class NewColumns:
    """Undeclared columns of a new table.

    Attributes:
        key: Columns in the struct of the key, empty if records have no keys; None if the file declares them, or names
            no key.
    """

    rows: Schema
    key: tuple[NestedField, ...] | None = None


@dataclass(frozen=True, slots=True)
class _Written:
    """Format of values or keys, and its place in the file.

    Attributes:
        sample: Returns the first records; None if the file names a subject to wait for, or there are no records.
    """

    part: Part
    block: str
    format: str
    options: Mapping[str, Any]
    subjects: tuple[str, ...]
    sample: Sample | None = None


def own_columns(spec: StreamSpec, settings: Settings, log: LogState) -> NewColumns:
    """Columns of a stream's main table if it is new; raises as `new_columns` does.

    If each table has its own columns, they are those of the topics of this table.
    """
    if not spec.own_columns:
        return new_columns(spec, settings, log)
    return lane_columns(spec, spec.table.name, settings, log)


def lane_columns(
    spec: StreamSpec, name: str, settings: Settings, log: LogState, begin: Positions | None = None
) -> NewColumns:
    """Columns of a table with its own columns, from all of its topics; raises as `new_columns` does."""
    naming = naming_state(spec, {}, decided=False)
    found = topic_tables(spec, log.topics, {spec.table.name, name}, naming)
    topics = {topic for topic, each in found.items() if each.table == name}
    return new_columns(spec.for_table(name), settings, of_topics(log, topics), begin)


def new_columns(
    spec: StreamSpec,
    settings: Settings,
    log: LogState,
    begin: Positions | None = None,
    sample: Sample | None = None,
) -> NewColumns:
    """Columns of a new table, without those of headers and Kafka's coordinates.

    Args:
        spec: A stream whose file does not declare all columns.
        begin: Offsets at which its records begin; None: as in the stream's file.
        sample: Returns its first records in place of Kafka.

    Raises:
        SchemaAwaitedError: The registry has neither the subject nor a schema that the first records name.
        RecordsAwaitedError: No record exists to infer them from.
        FrazilError: No schema is available.
    """
    topics = sorted(topic for topic in log.topics if spec.source.reads(topic))
    given = _sampling(spec, settings, log, begin) if sample is None else sample
    rows = _of_values(spec, settings, log, topics, begin, given)
    key = _of_key(spec, settings, log, topics, begin, given)
    if key == ():
        said = "its records have no keys, so it has no _change_key, and a mirror of it needs a key of its own"
        logger.warning("stream %s: changelog %s: %s", spec.stream, spec.table.name, said)
    return NewColumns(rows, key)


def refuse_misnamed(spec: StreamSpec, problems: list[tuple[Location, str]]) -> None:
    """Raise if the stream's file declares something about columns that do not exist so."""
    if problems:
        file = f"streams/{spec.stream}.yaml"
        raise FrazilError(
            "\n".join(f"{file}: {field_path(place)}: {problem}" for place, problem in problems), fix=f"correct {file}"
        )


def _of_values(
    spec: StreamSpec,
    settings: Settings,
    log: LogState,
    topics: list[str],
    begin: Positions | None,
    given: Sample | None,
) -> Schema:
    decode = spec.decode
    match decode.schema_source:
        case "registry":
            sample = None if decode.subject is not None else given
            subjects = value_subjects(decode, topics)
            values = _Written("value", "decode", decode.format, decode.options, subjects, sample)
            return _of_subject(spec, settings, values, _without_own_names)
        case "infer":
            return inferred_rows(spec, settings, log, begin, given)
        case "declared":
            return spec.declared_rows
        case _:
            raise _no_table(spec, "decode")


def _of_key(
    spec: StreamSpec,
    settings: Settings,
    log: LogState,
    topics: list[str],
    begin: Positions | None,
    given: Sample | None,
) -> tuple[NestedField, ...] | None:
    key = spec.decode.key
    if key is None or key.schema_source == "declared":
        return None
    if key.schema_source == "table":
        raise _no_table(spec, "decode.key")
    if key.schema_source == "infer":
        return inferred_key(spec, settings, log, begin, given).fields
    sample = None if key.subject is not None else given
    keys = _Written("key", "decode.key", key.format, key.options, key_subjects(spec.decode, topics), sample)
    try:
        rows = _of_subject(spec, settings, keys)
    except SchemaAwaitedError:
        if key.subject is not None or given is None or not may_be_keyless(spec) or not are_keyless(given()):
            raise
        return ()
    if spec.table.force_optional:
        rows = optional_columns(rows, [path[1:] for path in spec.table.identifiers if path[0] == key.columns.into])
    return rows.fields


def _no_table(spec: StreamSpec, block: str) -> FrazilError:
    return FrazilError(
        f"stream {spec.stream}: {block}.schema is 'table', and there is no table {spec.table.name}.",
        fix=f"create the table, or say with {block}.schema where its columns come from",
    )


def _of_subject(
    spec: StreamSpec, settings: Settings, written: _Written, check: Callable[[Schema], Schema] = lambda rows: rows
) -> Schema:
    format_, named = FORMATS[written.format], "decode.value" if written.block == "decode" else "decode.key.format"
    file = f"streams/{spec.stream}.yaml"
    client = registry_client(settings.registry)
    for subject in written.subjects:
        try:
            newest = client.version(subject)
        except NotInRegistryError:
            continue
        if newest.schema.kind != format_.registry_kind or format_.writer_rows is None:
            raise FrazilError(
                f"stream {spec.stream}: {named} is {written.format}, and subject {subject} has schemas of the type "
                f"{newest.schema.kind}.",
                fix=f"correct {named} in {file}",
            )
        try:
            return check(format_.writer_rows(newest.schema.schema, written.options))
        except BadWriterSchema as problem:
            raise FrazilError(
                f"stream {spec.stream}: subject {subject}, version {newest.version}, makes no table: {problem.message}",
                fix=f"register a version that does, or declare the columns in {written.block}.schema of {file}",
            ) from None
    if written.sample is not None and settings.registry is not None:
        find = RegistryLookup(registry_connection(settings.registry)).find
        named, sample = spec.decode.schema_id, written.sample()
        rows = named_rows(sample, format_, written.options, find, part=written.part, named=named)
        if rows is not None and written.part == "value":
            rows = usable_columns(rows, ColumnNames(None, None if spec.shapes else spec.table.partition_names))
        if rows is not None and rows.fields:
            return rows
    raise SchemaAwaitedError(
        f"stream {spec.stream}: the registry has no subject {' or '.join(written.subjects[:3])}, whose newest version "
        f"would make table {spec.table.name}"
        + (f", and no {written.part} of the first records names a schema that it has." if written.sample else "."),
        fix=f"name it in {written.block}.subject of {file}, or register a schema",
    )


def _sampling(spec: StreamSpec, settings: Settings, log: LogState, begin: Positions | None) -> Sample | None:
    return (lambda: first_sample(spec, settings, log, begin)) if log.latest else None


def _without_own_names(rows: Schema) -> Schema:
    """Columns without names that only frazil's own columns may have."""
    if own := [each.name for each in rows.fields if each.name.lower().startswith(KAFKA_COLUMN_PREFIX)]:
        raise BadWriterSchema(
            f"the field {own[0]} would be a column, and names that start with {KAFKA_COLUMN_PREFIX} are kept for "
            "frazil's own; declared columns leave such a field out"
        )
    return rows
