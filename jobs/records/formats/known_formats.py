"""Known formats of values, by their names in a stream's file; a new format is added here.

Libraries of Avro and Protobuf (DataFusion, Google's parser, ptars, protoc) are imported when a stream needs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from jobs.base.errors import FrazilError
from jobs.records.formats.connect_json.format import CONNECT_JSON
from jobs.records.formats.interface.decoder import Format, UnknownField, ValueDecoder
from jobs.records.formats.interface.decoder_spec import DecoderSpec, declared_of
from jobs.records.formats.interface.writer_schema import WriterDecoder, WriterSchema
from jobs.records.formats.json.format import JSON
from jobs.records.formats.json.writer_decoder import JsonWriterDecoder
from jobs.records.formats.json_schema.options import JsonSchemaOptions
from jobs.records.formats.json_schema.schema import json_schema_types
from jobs.records.formats.own.format import OWN
from jobs.records.formats.primitive.block import (
    COLUMN_TYPES,
    PrimitiveBlockDecoder,
    PrimitiveReferenceDecoder,
)
from jobs.records.formats.registry_decoder import RegistryKind, registry_format


def _avro_reference(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    from jobs.records.formats.avro.reference import make_reference

    return make_reference(schema, options)


def _avro_block(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    try:
        from jobs.records.formats.avro.block import make_block
    except ModuleNotFoundError as problem:
        if problem.name != "datafusion":
            raise
        raise FrazilError(
            "Blocks of Avro records need a package that is not installed (datafusion).",
            fix="pip install 'frazil[registry]'",
        ) from None
    return make_block(schema, options)


AVRO = registry_format("avro", RegistryKind("AVRO"), reference=_avro_reference, block=_avro_block)


_PROTOBUF_PACKAGES = ("google.protobuf", "grpc_tools", "ptars")


def _check_packages() -> None:
    if any(find_spec(name) is None for name in _PROTOBUF_PACKAGES):
        raise FrazilError("Protobuf needs packages that are not installed.", fix="pip install 'frazil[registry]'")


def _protobuf_reference(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    _check_packages()
    from jobs.records.formats.protobuf.reference import protobuf_reference

    return protobuf_reference(schema, options)


def _protobuf_block(schema: WriterSchema, options: Mapping[str, Any]) -> WriterDecoder:
    _check_packages()
    from jobs.records.formats.protobuf.block import protobuf_block

    return protobuf_block(schema, options)


PROTOBUF = registry_format(
    "protobuf",
    RegistryKind("PROTOBUF", messages=True, more_fields=True),
    reference=_protobuf_reference,
    block=_protobuf_block,
)


def _json_schema_reference(schema: WriterSchema, options: Mapping[str, Any]) -> JsonWriterDecoder:
    return _json_schema_decoder(schema, options, block=False)


def _json_schema_block(schema: WriterSchema, options: Mapping[str, Any]) -> JsonWriterDecoder:
    return _json_schema_decoder(schema, options, block=True)


def _json_schema_decoder(schema: WriterSchema, options: Mapping[str, Any], *, block: bool) -> JsonWriterDecoder:
    unknown = options.get("unknown_fields", "ignore")
    types = json_schema_types(schema, JsonSchemaOptions.of(options))
    return JsonWriterDecoder(types, block=block, unknown_fields=unknown)


JSON_SCHEMA = registry_format(
    "json_schema", RegistryKind("JSON", more_fields=True), _json_schema_reference, _json_schema_block
)


def _primitive_reference(spec: DecoderSpec) -> ValueDecoder:
    return PrimitiveReferenceDecoder(spec.kind, declared_of(spec))


def _primitive_block(spec: DecoderSpec) -> ValueDecoder:
    return PrimitiveBlockDecoder(spec.kind, declared_of(spec))


def _no_unknown_fields(
    _spec: DecoderSpec, _values: pa.BinaryArray, _rows: Iterable[int], _paths: Iterable[str]
) -> dict[str, UnknownField]:
    return {}


PRIMITIVES = tuple(
    Format(
        name, _primitive_reference, _primitive_block, probe=b"", unknown_fields=_no_unknown_fields, json_fields=False
    )
    for name in COLUMN_TYPES
)


FORMATS: Mapping[str, Format] = {
    each.name: each for each in (JSON, CONNECT_JSON, JSON_SCHEMA, AVRO, PROTOBUF, OWN, *PRIMITIVES)
}
