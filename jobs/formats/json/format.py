"""JSON format: objects with the keys that a stream declares, each in the way that it says."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jobs.formats.decoder import Format, UnknownField, ValueDecoder
from jobs.formats.decoder_spec import DecoderSpec, declared_of
from jobs.formats.json.block import JsonBlockDecoder
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.formats.json.unknown_fields import unknown_fields


def _reference(spec: DecoderSpec) -> ValueDecoder:
    return JsonReferenceDecoder(declared_of(spec), **spec.options)


def _block(spec: DecoderSpec) -> ValueDecoder:
    return JsonBlockDecoder(declared_of(spec), **spec.options)


def _unknown_fields(
    spec: DecoderSpec, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
) -> dict[str, UnknownField]:
    return unknown_fields(declared_of(spec), values, rows, paths)


JSON = Format("json", _reference, _block, probe=b"{}", unknown_fields=_unknown_fields, json_fields=True)
