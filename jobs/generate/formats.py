"""Generators by format: what makes values that a stream's decoder takes, and others that it refuses."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from jobs.errors import FrazilError
from jobs.formats.connect_json.payloads import REPLACE_NULL, SCHEMA_CONTENT
from jobs.formats.connect_json.schema import connect_types
from jobs.formats.connect_types import AS_SENT
from jobs.formats.decoder_spec import DecoderSpec, ResolvedSchema, declared_of
from jobs.formats.json.writer_decoder import JsonWriterTypes
from jobs.formats.json_schema.options import JsonSchemaOptions
from jobs.formats.json_schema.schema import json_schema_types
from jobs.formats.known_formats import FORMATS
from jobs.formats.primitive.block import COLUMN_TYPES
from jobs.formats.registry_wire import USE_SCHEMA_ID
from jobs.formats.writer_schema import BadWriterSchema
from jobs.generate.connect_records import ConnectGenerator
from jobs.generate.derived_schema import derived_schema
from jobs.generate.json_records import JsonGenerator
from jobs.generate.primitive_records import PrimitiveGenerator
from jobs.generate.record import FIRST_TIME, ValueGenerator
from jobs.generate.registry_records import OneSchema, RegistryGenerator
from jobs.generate.row_records import RowGenerator

_TRIALS = 20
_OWN_OPTIONS = frozenset({"unknown_fields", "evolve", "refused", USE_SCHEMA_ID})


def generator_for(resolved: ResolvedSchema, writer: OneSchema | None = None, *, name: str = "Record") -> ValueGenerator:
    """What makes values of a stream, or keys.

    Args:
        resolved: The rows that its values become, and their decoder.
        writer: The writer schema, of a format whose records name theirs.
        name: Of records whose schema is made here.

    Raises:
        FrazilError: Values of this format, or of a type among the columns, cannot be generated.
    """
    kind = resolved.decoder.kind
    try:
        made = _generator(resolved, writer, name)
    except BadWriterSchema as problem:
        raise FrazilError(f"values of the format {kind} cannot be generated: the schema {problem.message}") from None
    _require_lands(made, replace(resolved.decoder, schemas=writer))
    return made


def _generator(resolved: ResolvedSchema, writer: OneSchema | None, name: str) -> ValueGenerator:
    decoder = resolved.decoder
    evolve = decoder.options.get("evolve")
    how = {
        "refuses_more": decoder.options.get("unknown_fields") == "fail" or getattr(evolve, "add", None) == "propose",
        "evolves": evolve is not None,
    }
    columns = resolved.schema.fields
    match decoder.kind:
        case "json":
            return JsonGenerator(JsonWriterTypes(declared_of(decoder)), **how)
        case "connect_json":
            content: str | None = decoder.options.get(SCHEMA_CONTENT)
            text = content or derived_schema("connect_json", columns, name)
            defaults, as_sent = bool(decoder.options.get(REPLACE_NULL)), decoder.options.get(AS_SENT, ())
            types = connect_types(text, defaults=defaults, as_sent=as_sent)
            return ConnectGenerator(JsonGenerator(types, columns, **how), text, enveloped=content is None)
        case "avro" | "protobuf" | "json_schema" if writer is not None:
            return _of_writer(decoder, columns, writer, how)
        case kind if kind in COLUMN_TYPES:
            return PrimitiveGenerator(kind, columns[0].name)
        case kind:
            raise FrazilError(f"values of the format {kind} cannot be generated.")


def _of_writer(decoder: DecoderSpec, columns: Any, writer: OneSchema, how: Mapping[str, bool]) -> RegistryGenerator:
    schema = writer.schema.schema
    options = {key: value for key, value in decoder.options.items() if key not in _OWN_OPTIONS}
    match decoder.kind:
        case "avro":
            from jobs.generate.avro_encoding import AvroEncoder
            from jobs.generate.avro_records import AvroGenerator

            rows = RowGenerator(AvroEncoder(schema, options), columns, **how)
            return RegistryGenerator(AvroGenerator(rows), writer.number)
        case "protobuf":
            from jobs.formats.protobuf.compile import message_of
            from jobs.generate.protobuf_encoding import ProtobufEncoder
            from jobs.generate.protobuf_records import ProtobufGenerator

            message = schema.message or (0,)
            encoder = ProtobufEncoder(message_of(replace(schema, message=message)), options)
            made = ProtobufGenerator(RowGenerator(encoder, columns, **how), encoder.tree)
            return RegistryGenerator(made, writer.number, message)
        case _:
            # What is not required may be left out of any object; whether it may be null, not every schema says.
            bodies = JsonGenerator(
                json_schema_types(schema, JsonSchemaOptions.of(options)), columns, sends_null=False, **how
            )
            return RegistryGenerator(bodies, writer.number)


def _require_lands(made: ValueGenerator, decoder: DecoderSpec) -> None:
    """See that the stream's own decoder takes what is made."""
    values = [made.good(random.Random(number), FIRST_TIME) for number in range(_TRIALS)]
    if failures := FORMATS[decoder.kind].reference(decoder).decode(pa.array(values, pa.binary())).failures:
        where = f" at {failures[0].field}" if failures[0].field else ""
        raise FrazilError(f"values of this schema cannot be generated{where}: it {failures[0].message}")
