"""JSON format: objects with the keys that a stream declares, each in the way that it says."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from jobs.formats.decoder import Format, UnknownField, ValueDecoder
from jobs.formats.decoder_spec import DecoderSpec, declared_of
from jobs.formats.json.block import JsonBlockDecoder
from jobs.formats.json.evolving import EvolvingJsonDecoder, new_field_types
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.formats.json.unknown_fields import unknown_fields
from jobs.schema.evolution_policy import NO_EVOLUTION, EvolutionPolicy


def _reference(spec: DecoderSpec) -> ValueDecoder:
    return _evolving(spec, JsonReferenceDecoder)


def _block(spec: DecoderSpec) -> ValueDecoder:
    return _evolving(spec, JsonBlockDecoder)


def _evolving(spec: DecoderSpec, make: Callable[..., ValueDecoder]) -> ValueDecoder:
    """A decoder that tells what the table lacks, if its stream's policy asks for it."""
    options = dict(spec.options)
    policy: EvolutionPolicy = options.pop("evolve", NO_EVOLUTION)
    refused, infer = dict(options.pop("refused", ())), options.pop("infer", None)
    declared = declared_of(spec)
    decoder = make(declared, **options)
    if not policy.evolves:
        return decoder
    return EvolvingJsonDecoder(
        decoder,
        declared,
        policy=policy,
        refused=refused,
        types=new_field_types(infer),
        reference=lambda columns: JsonReferenceDecoder(columns, **options),
    )


def _unknown_fields(
    spec: DecoderSpec, values: pa.BinaryArray, rows: Iterable[int], paths: Iterable[str]
) -> dict[str, UnknownField]:
    return unknown_fields(declared_of(spec), values, rows, paths)


JSON = Format("json", _reference, _block, probe=b"{}", unknown_fields=_unknown_fields, json_fields=True)
