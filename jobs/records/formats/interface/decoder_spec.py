"""Decoder specs: the parameters of a decoder, and the resolved schema of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from pyiceberg.schema import Schema

from jobs.records.schema.declared import StructType, quoted
from jobs.records.schema.iceberg_schema import iceberg_schema, with_null
from jobs.records.schema.name_matching import EXACT_NAMES, NAME_RULE, NameRule
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.tokens import SchemaTextError

if TYPE_CHECKING:
    from jobs.records.formats.interface.writer_schema import SchemaLookup

SURVEY = "survey"
"""The option of a decoder that may leave blocks undecided, see `Decoded.undecided`."""


_UNRESOLVED = "the table determines the columns, and it was not read"


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema that a stream's file declares, in the language of `jobs.records.schema.parser`."""

    text: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table's schema: Iceberg's, as JSON. Records are matched with it by the names of their fields."""

    json: str


@dataclass(frozen=True, slots=True)
class UnresolvedSchema:
    """The schema of a stream's table before it was looked up: nothing can be decoded by it."""


RowsSchema: TypeAlias = DeclaredSchema | TableSchema | UnresolvedSchema
"""The source of the rows' schema."""


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """The parameters that turn values into rows; pickled for the tasks.

    Attributes:
        kind: Name of the format (`jobs.records.formats.known_formats`).
        schema: Source of the rows' schema.
        options: Options of the format, by name.
        schemas: Lookup of writer schemas by id, for a format whose records name them. Left out of the repr.
    """

    kind: str
    schema: RowsSchema
    options: Mapping[str, Any] = field(default_factory=dict)
    schemas: SchemaLookup | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """A stream's rows as its decoder gives them, from any source of the schema.

    Attributes:
        schema: Columns of the rows, without those that say where rows came from.
        decoder: Spec of their decoder.
    """

    schema: Schema
    decoder: DecoderSpec

    @property
    def names(self) -> NameRule:
        """Return how fields of records are matched with the columns."""
        return self.decoder.options.get(NAME_RULE, EXACT_NAMES)

    def with_options(self, more: Mapping[str, Any]) -> ResolvedSchema:
        """Return the same rows from a decoder with further options."""
        if not more:
            return self
        return replace(self, decoder=replace(self.decoder, options={**self.decoder.options, **more}))

    def with_schemas(self, schemas: SchemaLookup | None) -> ResolvedSchema:
        """Return the same with a lookup of writer schemas by id."""
        return replace(self, decoder=replace(self.decoder, schemas=schemas))


def resolved(decoder: DecoderSpec) -> ResolvedSchema:
    """Return the schema of a decoder's rows."""
    return ResolvedSchema(rows_of(decoder), decoder)


def resolved_rows(kind: str, rows: Schema, options: Mapping[str, Any]) -> ResolvedSchema:
    """Return the decoder for rows of a schema, with their schema.

    Args:
        kind: Name of the format.
        rows: The columns of a table, without those that say where rows came from.
        options: Options of the format.
    """
    return ResolvedSchema(rows, DecoderSpec(kind, TableSchema(rows.model_dump_json()), options))


def declared_of(decoder: DecoderSpec) -> StructType:
    """Return the rows' columns as declared types; a table's columns have their default JSON encodings."""
    match decoder.schema:
        case DeclaredSchema(text):
            return parse_schema(text)
        case TableSchema(json):
            fields = _table(json).fields
            return parse_schema(", ".join(f"{quoted(each.name)} {with_null(each)}" for each in fields))
        case UnresolvedSchema():
            raise ValueError(_UNRESOLVED)


def undeclared_column(rows: Schema) -> str | None:
    """Return a column of a table that has no declared type, and why; None if all have one."""
    texts = [f"{quoted(each.name)} {with_null(each)}" for each in rows.fields]
    if not texts or _problem(texts) is None:
        return None
    at = next(at for at in range(len(texts)) if _problem(texts[: at + 1]) is not None)
    return f"{rows.fields[at].name} ({_problem(texts[: at + 1])})"


def _problem(texts: list[str]) -> str | None:
    try:
        parse_schema(", ".join(texts))
    except SchemaTextError as problem:
        return problem.message.partition(": ")[2].rstrip(".")
    return None


def rows_of(decoder: DecoderSpec) -> Schema:
    """Return the columns of a decoder's rows."""
    match decoder.schema:
        case DeclaredSchema(text):
            return _declared(text)
        case TableSchema(json):
            return _table(json)
        case UnresolvedSchema():
            raise ValueError(_UNRESOLVED)


@lru_cache(maxsize=256)
def _table(json: str) -> Schema:
    return Schema.model_validate_json(json)


@lru_cache(maxsize=256)
def _declared(text: str) -> Schema:
    return iceberg_schema(parse_schema(text))
