"""Records of a stream: values and keys that its decoders take, and the headers that its rows have columns of."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa

from jobs.base.errors import FrazilError
from jobs.local.generate.derived_schema import derived_schema
from jobs.local.generate.json_encoding import json_leaf, json_value
from jobs.local.generate.record import (
    FIRST_TIME,
    HeaderGenerator,
    RecordGenerator,
    ValueGenerator,
)
from jobs.local.generate.rows import drawn_value
from jobs.local.generate.values import (
    BinaryGenerator,
    ConnectGenerator,
    JsonGenerator,
    OneSchema,
    PrimitiveGenerator,
    RegistryGenerator,
)
from jobs.records.formats.connect_json.payloads import REPLACE_NULL, SCHEMA_CONTENT
from jobs.records.formats.connect_json.schema import connect_types
from jobs.records.formats.connect_types import AS_SENT
from jobs.records.formats.interface.decoder_spec import (
    DecoderSpec,
    ResolvedSchema,
    declared_of,
    resolved,
)
from jobs.records.formats.interface.problems import MALFORMED_AVRO, MALFORMED_PROTOBUF
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.json.writer_decoder import JsonWriterTypes
from jobs.records.formats.json_schema.options import JsonSchemaOptions
from jobs.records.formats.json_schema.schema import json_schema_types
from jobs.records.formats.known_formats import FORMATS
from jobs.records.formats.primitive.block import COLUMN_TYPES
from jobs.records.formats.record_columns import HeaderColumn, RecordColumns
from jobs.records.formats.registry_wire import USE_SCHEMA_ID
from jobs.records.schema.declared import Primitive

_TRIALS = 20
_OWN_OPTIONS = frozenset({"unknown_fields", "evolve", "refused", USE_SCHEMA_ID})


def record_generator(
    stream: str,
    rows: ResolvedSchema,
    columns: RecordColumns,
    writer: OneSchema | None = None,
    key_writer: OneSchema | None = None,
) -> RecordGenerator:
    """Generator of records that a stream lands, and of bad ones.

    Args:
        stream: Id of the stream.
        rows: Schema of the rows that values become, and their decoder.
        columns: Columns that are not from the value.
        writer: Writer schema of values; None if the format's values name none.
        key_writer: Writer schema of keys; None if the format's keys name none.

    Raises:
        FrazilError: Records of such formats, or columns, cannot be generated.
    """
    key = None
    if columns.key is not None:
        try:
            key = generator_for(resolved(columns.key.decoder), key_writer, name=f"{stream} key")
        except FrazilError as problem:
            raise FrazilError(f"keys: {problem.message}", fix=problem.fix) from None
    return RecordGenerator(generator_for(rows, writer, name=stream), key, tuple(_headers(columns.headers)))


def generator_for(rows: ResolvedSchema, writer: OneSchema | None = None, *, name: str = "Record") -> ValueGenerator:
    """Generator of a stream's values or keys.

    Args:
        rows: Schema of the rows that values become, and their decoder.
        writer: Writer schema; None if the format's records name none.
        name: Name of the record type in a schema that is made here.

    Raises:
        FrazilError: Values of this format, or of a type among the columns, cannot be generated.
    """
    kind = rows.decoder.kind
    try:
        made = _generator(rows, writer, name)
    except BadWriterSchema as problem:
        raise FrazilError(f"values of the format {kind} cannot be generated: the schema {problem.message}") from None
    _require_lands(made, replace(rows.decoder, schemas=writer))
    return made


def _generator(rows: ResolvedSchema, writer: OneSchema | None, name: str) -> ValueGenerator:
    decoder = rows.decoder
    evolves = decoder.options.get("evolve") is not None
    columns = rows.schema.fields
    match decoder.kind:
        case "json":
            return JsonGenerator(JsonWriterTypes(declared_of(decoder)), evolves=evolves)
        case "connect_json":
            content: str | None = decoder.options.get(SCHEMA_CONTENT)
            text = content or derived_schema("connect_json", columns, name)
            defaults, as_sent = bool(decoder.options.get(REPLACE_NULL)), decoder.options.get(AS_SENT, ())
            types = connect_types(text, defaults=defaults, as_sent=as_sent)
            return ConnectGenerator(JsonGenerator(types, evolves=evolves), text, enveloped=content is None)
        case "avro" | "protobuf" | "json_schema" if writer is not None:
            return _of_writer(decoder, columns, writer, evolves=evolves)
        case kind if kind in COLUMN_TYPES:
            return PrimitiveGenerator(kind, columns[0].name)
        case kind:
            raise FrazilError(f"values of the format {kind} cannot be generated.")


def _of_writer(decoder: DecoderSpec, columns: Any, writer: OneSchema, *, evolves: bool) -> RegistryGenerator:
    schema = writer.schema.schema
    options: Mapping[str, Any] = {key: value for key, value in decoder.options.items() if key not in _OWN_OPTIONS}
    match decoder.kind:
        case "avro":
            from jobs.local.generate.avro_encoding import AvroEncoder

            bodies = BinaryGenerator(AvroEncoder(schema, options), columns, "avro", MALFORMED_AVRO, empty_is_bad=True)
            return RegistryGenerator(bodies, writer.number)
        case "protobuf":
            from jobs.local.generate.protobuf_encoding import ProtobufEncoder
            from jobs.records.formats.protobuf.compile import message_of

            message = schema.message or (0,)
            encoder = ProtobufEncoder(message_of(replace(schema, message=message)), options)
            bodies = BinaryGenerator(encoder, columns, "protobuf", MALFORMED_PROTOBUF, empty_is_bad=False)
            return RegistryGenerator(bodies, writer.number, message)
        case _:
            # What is not required may be left out of any object; whether it may be null, not every schema says.
            types = json_schema_types(schema, JsonSchemaOptions.of(options))
            return RegistryGenerator(JsonGenerator(types, evolves=evolves, sends_null=False), writer.number)


def _require_lands(made: ValueGenerator, decoder: DecoderSpec) -> None:
    """See that the stream's own decoder takes what is made."""
    values = [made.good(random.Random(number), FIRST_TIME) for number in range(_TRIALS)]
    if failures := FORMATS[decoder.kind].reference(decoder).decode(pa.array(values, pa.binary())).failures:
        where = f" at {failures[0].field}" if failures[0].field else ""
        raise FrazilError(
            f"values of this schema cannot be generated{where}: it {failures[0].message}",
            fix="name a subject whose values all fit the stream's columns",
        )


def _headers(columns: Iterable[HeaderColumn]) -> Iterator[HeaderGenerator]:
    by_header: dict[str, list[HeaderColumn]] = {}
    for each in columns:
        by_header.setdefault(each.header, []).append(each)
    for header, several in by_header.items():
        kinds = {(each.column.type, each.as_bytes) for each in several}
        if len(kinds) > 1:
            named = " and ".join(each.name for each in several)
            raise FrazilError(f"header {header}: no value is known that fits all of the columns {named}.")
        yield _header(header, several[0])


def _header(header: str, column: HeaderColumn) -> HeaderGenerator:
    kind = column.column.type
    assert isinstance(kind, Primitive)
    if column.as_bytes:
        numbers = {word: name for name, word in COLUMN_TYPES.items() if name != "short"}
        return HeaderGenerator(header, PrimitiveGenerator(numbers[kind.name], column.name).good)
    leaf = json_leaf(kind, column.name)

    def value(rng: random.Random, at: datetime) -> bytes:
        drawn = drawn_value(leaf, rng, at, column.name)
        if kind.name == "binary":
            return drawn
        made = json_value(kind, drawn)
        return made.encode() if isinstance(made, str) else msgspec.json.encode(made)

    return HeaderGenerator(header, value)
