"""JSON Schema format: each value JSON behind the id of its schema in a registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jobs.formats.json.writer_decoder import JsonWriterDecoder
from jobs.formats.json_schema.options import JsonSchemaOptions
from jobs.formats.json_schema.schema import json_schema_types
from jobs.formats.registry_decoder import RegistryKind, registry_format
from jobs.formats.writer_schema import WriterSchema


def _reference(schema: WriterSchema, options: Mapping[str, Any]) -> JsonWriterDecoder:
    return _decoder(schema, options, block=False)


def _block(schema: WriterSchema, options: Mapping[str, Any]) -> JsonWriterDecoder:
    return _decoder(schema, options, block=True)


def _decoder(schema: WriterSchema, options: Mapping[str, Any], *, block: bool) -> JsonWriterDecoder:
    unknown = options.get("unknown_fields", "ignore")
    types = json_schema_types(schema, JsonSchemaOptions.of(options))
    return JsonWriterDecoder(types, block=block, unknown_fields=unknown)


JSON_SCHEMA = registry_format("json_schema", RegistryKind("JSON", more_fields=True), _reference, _block)
