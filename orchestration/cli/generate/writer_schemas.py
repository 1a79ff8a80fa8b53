"""Writer schemas of generated records: the newest version of their subject, or one made of the stream's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click
from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.formats.decoder_spec import ResolvedSchema
from jobs.formats.known_formats import FORMATS
from jobs.formats.record_columns import RecordColumns
from jobs.formats.writer_schema import BadWriterSchema, RegistrySchema, WriterSchema
from jobs.generate.derived_schema import derived_schema
from jobs.generate.record import RecordGenerator
from jobs.generate.registry_records import OneSchema
from jobs.generate.stream_records import record_generator
from jobs.registry.client import RegistryClient, registry_client
from jobs.registry.failures import NotInRegistryError
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from orchestration.cli.schema.diff import stream_table


@dataclass(frozen=True, slots=True)
class Subjects:
    """Where the schemas of values and keys are.

    Attributes:
        value: The subject of values.
        key: That of keys.
        register: Whether one that is not there is made.
    """

    value: str
    key: str
    register: bool = False


def stream_generator(spec: StreamSpec, settings: Settings, subjects: Subjects) -> RecordGenerator:
    """What makes records of a stream, in the schemas that a registry has for them.

    Raises:
        FrazilError: Its columns are not known as yet, a subject is not there, or such records cannot be generated.
        RegistryError: The registry cannot be asked.
    """
    rows, columns = _known_rows(spec, settings)
    key = columns.key
    if not {_kind(spec.decode.format), _kind(key.decoder.kind if key else "json")} - {None}:
        return record_generator(spec.stream, rows or spec.resolved, columns)
    client = registry_client(settings.registry)
    try:
        writers = _Writers(client, spec.stream, register=subjects.register)
        writer = writers.find(spec.decode.format, subjects.value, rows.schema if rows else None, "values")
        key_rows = key.rows if key and key.is_resolved else None
        key_writer = writers.find(key.decoder.kind, subjects.key, key_rows, "keys") if key else None
    finally:
        client.close()
    if rows is None and writer is not None:
        made = _rows_of(spec.decode.format, spec.decode.options, writer, subjects.value)
        rows = spec.decode.resolved_for(made).with_options(spec.evolution.as_options())
    if key is not None and not key.is_resolved:
        if key_writer is None:
            raise FrazilError(
                f"stream {spec.stream}: decode.key.schema is 'table', and table {spec.table.name} is not there yet.",
                fix=f"frazil run {spec.stream}, which creates it",
            )
        columns = columns.with_key_of(_rows_of(key.decoder.kind, key.decoder.options, key_writer, subjects.key).fields)
    return record_generator(spec.stream, rows or spec.resolved, columns, writer, key_writer)


def _kind(format_: str) -> str | None:
    return FORMATS[format_].registry_kind


def _known_rows(spec: StreamSpec, settings: Settings) -> tuple[ResolvedSchema | None, RecordColumns]:
    """The rows as the stream's file or its table says them, None if neither does; and the columns beside them.

    They are those of the stream's driver, which may alter the table.
    """
    declared = spec.decode.declared
    rows = declared.with_options(spec.evolution.as_options()) if declared else None
    table = None if spec.decode.declares_all else stream_table(spec, settings)
    if table is None:
        return rows, spec.record_columns
    columns = spec.record_columns_for(table.schema(), table.properties)
    return spec.resolved_for(table.schema(), table.properties, evolving=True), columns


def _rows_of(format_: str, options: Mapping[str, Any], writer: OneSchema, subject: str) -> Schema:
    """The columns of a table that is still to be made, of the schema with which it would be."""
    make: Callable[..., Schema] | None = FORMATS[format_].writer_rows
    assert make is not None
    try:
        return make(writer.schema.schema, options)
    except BadWriterSchema as problem:
        raise FrazilError(f"the schema of subject {subject} cannot be read: {problem.message}") from None


class _Writers:
    """Finds writer schemas in a registry, or makes them.

    Args:
        client: Of the registry.
        stream: The stream's id.
        register: Whether a subject that is not there is made.
    """

    def __init__(self, client: RegistryClient, stream: str, *, register: bool) -> None:
        self._client: RegistryClient = client
        self._stream: str = stream
        self._register: bool = register

    def find(self, format_: str, subject: str, rows: Schema | None, what: str) -> OneSchema | None:
        """The newest schema of a subject; None of a format whose records name none."""
        kind = _kind(format_)
        if kind is None:
            return None
        try:
            found = self._client.version(subject)
        except NotInRegistryError:
            return self._made(format_, kind, subject, rows, what)
        if found.schema.kind != kind:
            raise FrazilError(
                f"subject {subject} has schemas of the kind {found.schema.kind}, and {what} of stream {self._stream} "
                f"are {format_}.",
                fix=f"name another one with {_option(what)}",
            )
        return OneSchema(found.id, found.schema)

    def _made(self, format_: str, kind: str, subject: str, rows: Schema | None, what: str) -> OneSchema:
        problem = f"the registry has no subject {subject}, which says how {what} of stream {self._stream} are written"
        if rows is None:
            raise FrazilError(
                f"{problem}; and its table, whose columns would do, is not there yet.",
                fix=f"register a schema, or name a subject that is there with {_option(what)}",
            )
        text = derived_schema(format_, rows.fields, f"{self._stream} {'key' if what == 'keys' else ''}")
        if not self._register:
            raise FrazilError(
                f"{problem}. --register makes it, with this schema of the stream's columns:\n{text}",
                fix=f"frazil generate {self._stream} --register, or name a subject with {_option(what)}",
            )
        number = self._client.register(subject, kind, text)
        click.echo(f"Registered subject {subject} (id {number}): a schema made of the stream's columns.", err=True)
        return OneSchema(number, RegistrySchema(kind, WriterSchema(text)))


def _option(what: str) -> str:
    return "--key-subject" if what == "keys" else "--subject"
