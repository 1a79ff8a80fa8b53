"""Decoder specs: what a decoder is made from, and the resolved schema of the rows that it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyiceberg.schema import Schema

from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema that a stream's file declares, in the language of `jobs.schema.parser`."""

    text: str


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """How values become rows; travels to the tasks pickled.

    Attributes:
        kind: Name of the format (`jobs.formats.known_formats`).
        schema: Where the schema of the rows is from.
        options: Those that the format takes, by name.
    """

    kind: str
    schema: DeclaredSchema
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """The rows of a stream as its decoder gives them, wherever that is known from.

    Attributes:
        schema: Their columns, without those that say where rows came from.
        decoder: What gives them.
    """

    schema: Schema
    decoder: DecoderSpec


def resolved(decoder: DecoderSpec) -> ResolvedSchema:
    """The schema of the rows that a decoder gives."""
    return ResolvedSchema(_declared(decoder.schema.text), decoder)


@lru_cache(maxsize=256)
def _declared(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))
