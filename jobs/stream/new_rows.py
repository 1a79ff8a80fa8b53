"""Columns of a new table that its stream's file does not declare: a registry's newest schema, or the first records."""

from __future__ import annotations

from pyiceberg.schema import Schema

from jobs.commit.log_state import LogState
from jobs.errors import FrazilError
from jobs.formats.known_formats import FORMATS
from jobs.formats.writer_schema import BadWriterSchema
from jobs.registry.client import registry_client
from jobs.registry.errors import NotInRegistryError
from jobs.schema.parser import KAFKA_COLUMN_PREFIX
from jobs.spec.base import field_path
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.first_records import inferred_rows


class SchemaAwaitedError(FrazilError):
    """There is no schema yet that would make the table: nobody has registered one."""


def new_rows(spec: StreamSpec, settings: Settings, log: LogState) -> Schema:
    """The columns of a new table, without those that say where rows came from.

    Args:
        spec: A stream whose file does not declare them.
        settings: Of the deployment.
        log: The stream's topics.

    Raises:
        SchemaAwaitedError: The registry has no such subject yet.
        RecordsAwaitedError: No record is there to infer them from.
        FrazilError: There is no schema to go by.
        OSError: The registry cannot be asked.
    """
    source = spec.decode.schema_source
    if source == "registry":
        return _of_subject(spec, settings, log)
    if source == "infer":
        return inferred_rows(spec, settings, log)
    raise FrazilError(
        f"stream {spec.stream}: decode.schema is '{source}', and there is no table {spec.table.name}.",
        fix="create the table, or say with decode.schema where its columns come from",
    )


def refuse_misnamed(spec: StreamSpec, rows: Schema) -> Schema:
    """The columns, if all that the stream's file says of columns is of these.

    Raises:
        FrazilError: With each place of the file that names another one.
    """
    if problems := spec.problems_of(rows):
        file = f"streams/{spec.stream}.yaml"
        raise FrazilError(
            "\n".join(f"{file}: {field_path(place)}: {problem}" for place, problem in problems), fix=f"correct {file}"
        )
    return rows


def subjects(spec: StreamSpec, topics: list[str]) -> list[str]:
    """The subjects that a stream's values have in a registry: the one that is named, or that of each topic."""
    return [spec.decode.subject] if spec.decode.subject else [f"{topic}-value" for topic in topics]


def _of_subject(spec: StreamSpec, settings: Settings, log: LogState) -> Schema:
    format_ = FORMATS[spec.decode.format]
    asked = subjects(spec, sorted(topic for topic in log.topics if spec.source.reads(topic)))
    client = registry_client(settings.registry)
    for subject in asked:
        try:
            newest = client.version(subject)
        except NotInRegistryError:
            continue
        if newest.schema.kind != format_.registry_kind or format_.writer_rows is None:
            raise FrazilError(
                f"stream {spec.stream}: decode.value is {spec.decode.format}, and subject {subject} has schemas of the "
                f"kind {newest.schema.kind}.",
                fix=f"correct decode.value in streams/{spec.stream}.yaml",
            )
        try:
            return _without_own_names(format_.writer_rows(newest.schema.schema, spec.decode.options))
        except BadWriterSchema as problem:
            raise FrazilError(
                f"stream {spec.stream}: subject {subject}, version {newest.version}, makes no table: {problem.message}",
                fix=f"register a version that does, or declare the columns in streams/{spec.stream}.yaml",
            ) from None
    raise SchemaAwaitedError(
        f"stream {spec.stream}: the registry has no subject {' or '.join(asked[:3])}, whose newest version would make "
        f"table {spec.table.name}.",
        fix=f"name it in decode.subject of streams/{spec.stream}.yaml, or register a schema",
    )


def _without_own_names(rows: Schema) -> Schema:
    """The columns, none of which has a name that only frazil's own may have.

    Raises:
        BadWriterSchema: One has.
    """
    if own := [each.name for each in rows.fields if each.name.lower().startswith(KAFKA_COLUMN_PREFIX)]:
        raise BadWriterSchema(
            f"the field {own[0]} would be a column, and names that start with {KAFKA_COLUMN_PREFIX} are kept for "
            "frazil's own; declared columns leave such a field out"
        )
    return rows
