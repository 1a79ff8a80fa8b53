"""Decoder specs: what a decoder is made from, and the resolved schema of the rows that it gives."""

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


_UNRESOLVED = "the table says which columns there are, and it was not looked at"


@dataclass(frozen=True, slots=True)
class DeclaredSchema:
    """A schema that a stream's file declares, in the language of `jobs.records.schema.parser`."""

    text: str


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A schema that a table has: Iceberg's, as JSON. Records are matched with it by the names of their fields."""

    json: str


@dataclass(frozen=True, slots=True)
class UnresolvedSchema:
    """A schema that a stream's table says, which nobody has looked at yet: nothing can be decoded by it."""


RowsSchema: TypeAlias = DeclaredSchema | TableSchema | UnresolvedSchema
"""Where the schema of the rows is from."""


@dataclass(frozen=True, slots=True)
class DecoderSpec:
    """How values become rows; travels to the tasks pickled.

    Attributes:
        kind: Name of the format (`jobs.records.formats.known_formats`).
        schema: Where the schema of the rows is from.
        options: Those that the format takes, by name.
        schemas: Finds writer schemas by their ids, of a format whose records name them. Left out of the repr.
    """

    kind: str
    schema: RowsSchema
    options: Mapping[str, Any] = field(default_factory=dict)
    schemas: SchemaLookup | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ResolvedSchema:
    """The rows of a stream as its decoder gives them, wherever that is known from.

    Attributes:
        schema: Their columns, without those that say where rows came from.
        decoder: What gives them.
    """

    schema: Schema
    decoder: DecoderSpec

    @property
    def names(self) -> NameRule:
        """How fields of records are matched with the columns."""
        return self.decoder.options.get(NAME_RULE, EXACT_NAMES)

    def with_options(self, more: Mapping[str, Any]) -> ResolvedSchema:
        """The same rows by a decoder with further options."""
        if not more:
            return self
        return replace(self, decoder=replace(self.decoder, options={**self.decoder.options, **more}))

    def with_schemas(self, schemas: SchemaLookup | None) -> ResolvedSchema:
        """The same with what finds writer schemas by their ids."""
        return replace(self, decoder=replace(self.decoder, schemas=schemas))


def resolved(decoder: DecoderSpec) -> ResolvedSchema:
    """The schema of the rows that a decoder gives."""
    return ResolvedSchema(rows_of(decoder), decoder)


def resolved_rows(kind: str, rows: Schema, options: Mapping[str, Any]) -> ResolvedSchema:
    """The decoder that gives rows of a schema, with their schema.

    Args:
        kind: Name of the format.
        rows: The columns of a table, without those that say where rows came from.
        options: Of the format.
    """
    return ResolvedSchema(rows, DecoderSpec(kind, TableSchema(rows.model_dump_json()), options))


def declared_of(decoder: DecoderSpec) -> StructType:
    """The columns of the rows as declared types: of a table, each in the way that JSON carries it by default."""
    match decoder.schema:
        case DeclaredSchema(text):
            return parse_schema(text)
        case TableSchema(json):
            fields = _table(json).fields
            return parse_schema(", ".join(f"{quoted(each.name)} {with_null(each)}" for each in fields))
        case UnresolvedSchema():
            raise ValueError(_UNRESOLVED)


def undeclared_column(rows: Schema) -> str | None:
    """The column of a table on whose account its columns are no declared types, and why; None if they are."""
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
    """The columns of the rows that a decoder gives."""
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
