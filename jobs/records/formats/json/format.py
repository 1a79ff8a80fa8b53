"""JSON format: objects with the keys that a stream declares, each in its declared encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from jobs.records.formats.interface.decoder import Format, UnknownField, ValueDecoder
from jobs.records.formats.interface.decoder_spec import SURVEY, DecoderSpec, declared_of
from jobs.records.formats.json.block import JsonBlockDecoder
from jobs.records.formats.json.evolving import EvolvingJsonDecoder, SurveyingJsonDecoder
from jobs.records.formats.json.new_fields import new_field_types
from jobs.records.formats.json.reference import JsonReferenceDecoder
from jobs.records.formats.json.rescued_json import RescuingJsonDecoder
from jobs.records.formats.json.unknown_fields import (
    Rename,
    Renaming,
    as_sent,
    unknown_fields,
)
from jobs.records.schema.declared import StructType
from jobs.records.schema.name_matching import EXACT_NAMES, NAME_RULE, NameRule
from jobs.records.schema.needs import NO_EVOLUTION, EvolutionPolicy
from jobs.records.schema.rescued_data import EXTRA_COLUMN, EXTRA_PLACE


def _reference(spec: DecoderSpec) -> ValueDecoder:
    return _made(spec, JsonReferenceDecoder)


def _block(spec: DecoderSpec) -> ValueDecoder:
    if spec.options.get(SURVEY):
        return SurveyingJsonDecoder(declared_of(spec), lambda columns, make: _made(spec, make, columns))
    return _made(spec, JsonBlockDecoder)


def _made(spec: DecoderSpec, make: Callable[..., ValueDecoder], columns: StructType | None = None) -> ValueDecoder:
    """Return a decoder that reports changes the table needs and keeps fields without a column, as configured."""
    options, declared = dict(spec.options), columns or declared_of(spec)
    options.pop(SURVEY, None)
    policy: EvolutionPolicy = options.pop("evolve", NO_EVOLUTION)
    refused, infer = dict(options.pop("refused", ())), options.pop("infer", None)
    refused_changes = frozenset(options.pop("refused_changes", ()))
    column, keeps = options.pop("extra_column", True), options.get("unknown_fields") == "keep"
    if keeps:
        options["unknown_fields"] = "ignore"
        declared = StructType(tuple(each for each in declared.fields if each.name != EXTRA_COLUMN))
    decoder = make(declared, **options)
    rename = _rename(declared, options.get(NAME_RULE, EXACT_NAMES))
    if policy.evolves:
        decoder = EvolvingJsonDecoder(
            decoder,
            declared,
            policy=policy,
            refused=refused,
            types=new_field_types(infer),
            reference=lambda columns: JsonReferenceDecoder(columns, **options),
            rename=rename,
            refused_changes=refused_changes,
        )
    if not keeps:
        return decoder
    return RescuingJsonDecoder(decoder, declared, column=column, refused=refused.get(EXTRA_PLACE), rename=rename)


def _rename(declared: StructType, names: NameRule) -> Rename:
    return Renaming(declared, names).or_as_sent if names else as_sent


def unknown_json_fields(
    spec: DecoderSpec, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
) -> dict[str, UnknownField]:
    """Find unknown fields as `unknown_fields` does, with keys matched by the stream's rule."""
    declared = declared_of(spec)
    rename = _rename(declared, spec.options.get(NAME_RULE, EXACT_NAMES))
    return unknown_fields(declared, values, rows, paths, rename)


JSON = Format("json", _reference, _block, probe=b"{}", unknown_fields=unknown_json_fields, json_fields=True)
