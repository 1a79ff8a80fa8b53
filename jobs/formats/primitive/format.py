"""Primitive formats: a value is one text, some bytes, or one number of fixed width, and becomes one column."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from jobs.formats.decoder import Format, UnknownField, ValueDecoder
from jobs.formats.decoder_spec import DecoderSpec, declared_of
from jobs.formats.primitive.block import PrimitiveBlockDecoder
from jobs.formats.primitive.reference import PrimitiveReferenceDecoder
from jobs.formats.primitive.schema import COLUMN_TYPES


def _reference(spec: DecoderSpec) -> ValueDecoder:
    return PrimitiveReferenceDecoder(spec.kind, declared_of(spec))


def _block(spec: DecoderSpec) -> ValueDecoder:
    return PrimitiveBlockDecoder(spec.kind, declared_of(spec))


def _unknown_fields(
    _spec: DecoderSpec, _values: pa.BinaryArray, _rows: Iterable[int], _paths: Iterable[str]
) -> dict[str, UnknownField]:
    return {}


PRIMITIVES = tuple(
    Format(name, _reference, _block, probe=b"", unknown_fields=_unknown_fields, json_fields=False)
    for name in COLUMN_TYPES
)
