"""Decode block of a stream's YAML file: in which format its values are written, and where their schema is from."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator
from pyiceberg.schema import Schema

from jobs.formats.decoder_spec import DeclaredSchema, DecoderSpec, ResolvedSchema, resolved, resolved_rows
from jobs.formats.own.format import own_decoder_problem
from jobs.formats.primitive.schema import COLUMN_TYPES, schema_problem
from jobs.formats.record_columns import RecordColumns, SchemaIdPlace
from jobs.schema.kafka_columns import KafkaColumns
from jobs.schema.name_matching import NAME_RULE, Aliases, NameRule
from jobs.schema.parser import parse_schema
from jobs.schema.rescued_data import EXTRA_COLUMN, with_extra_column, without_extra_column
from jobs.spec.base import Flag, Location, SpecModel, problems_at
from jobs.spec.config_hash import ChangesRows
from jobs.spec.decode_record import Headers, KeyDecode, hashed_headers, hashed_key
from jobs.spec.fields import schema_text
from jobs.spec.value_format import REGISTRY_FORMATS, SOURCES, SchemaSource, ValueFormat, hashed_format


def _schema(value: object) -> object:
    return value if value in ("registry", "table", "infer") else schema_text(value)


def _hashed_schema(_: Any, text: str) -> str:
    return text if text in ("registry", "table", "infer") else parse_schema(text).text


class DecodeKey(KeyDecode):
    """How the bytes of a record's key become columns, in a format of values."""

    form: Annotated[ValueFormat, Field(alias="@form")]


class Decode(SpecModel):
    """How bytes become typed columns.

    Args:
        value: Name of the format of values, or the name with options.
        schema_text: The columns, in the language of ``jobs.schema.parser``; or where they are from: ``registry``,
            ``table``, ``infer``.
        unknown_fields: What becomes of fields of a value that no column takes.
        case_insensitive: Whether a field of a value goes into a column whose name differs from its own by case only.
        key: Columns from the record's key, if there are any.
        headers: Columns from the record's headers, by the column's name.
        schema_id: Where a record names its writer schema, of a format with a registry.
        subject: Of the registry, whose newest version makes the table and is watched; without it the topic's name with
            ``-value`` behind it. Records say themselves which schema they have.
    """

    value: Annotated[ValueFormat, ChangesRows(written=hashed_format)]
    schema_text: Annotated[
        str,
        BeforeValidator(_schema),
        Field(alias="schema"),
        ChangesRows(("decode", "schema"), _hashed_schema),
    ]
    unknown_fields: Annotated[Literal["ignore", "fail", "keep"], ChangesRows()] = "ignore"
    case_insensitive: Annotated[Flag, ChangesRows(unless=False)] = False
    subject: str | None = None
    key: Annotated[DecodeKey | None, ChangesRows(written=hashed_key, unless=None)] = None
    schema_id: Annotated[SchemaIdPlace, ChangesRows(unless="both")] = "both"
    headers: Annotated[Headers, ChangesRows(written=hashed_headers, unless={})] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _parts_agree(self) -> Decode:
        problems: list[tuple[Location, str]] = []
        known = SOURCES.get(self.format, ("declared",))
        if self.schema_source not in known:
            problems.append((("schema",), _source_problem(self.format, self.schema_source, known)))
        elif self.unknown_fields == "keep" and (problem := self._keep_problem()):
            problems.append((("unknown_fields",), problem))
        elif self.format in COLUMN_TYPES:
            if problem := schema_problem(self.format, parse_schema(self.schema_text)):
                problems.append((("schema",), problem))
            if self.unknown_fields != "ignore":
                problems.append(
                    (("unknown_fields",), f"is about keys of JSON; values of the format {self.format} have none")
                )
            if self.case_insensitive:
                problems.append((("case_insensitive",), f"is about names of fields; values of {self.format} have none"))
        elif self.format == "own":
            problems.extend(self._own_problems())
        if problems:
            raise problems_at(problems)
        return self

    def _own_problems(self) -> list[tuple[Location, str]]:
        """What a decoder of one's own cannot be asked for, or does not give."""
        said = "is up to the decoder, of values of the format own"
        options = {"unknown_fields": self.unknown_fields != "ignore", "case_insensitive": self.case_insensitive}
        if given := [name for name, differs in options.items() if differs]:
            return [((name,), said) for name in given]
        problem = own_decoder_problem(DecoderSpec(self.format, DeclaredSchema(self.schema_text), self.options))
        return [(("value", "decoder"), problem)] if problem else []

    def _keep_problem(self) -> str | None:
        if self.format in COLUMN_TYPES:
            return f"is about fields; values of the format {self.format} have none"
        if self.format == "own":
            return "is up to the decoder, of values of the format own"
        if self.schema_source == "declared":
            names = {each.name.casefold() for each in parse_schema(self.schema_text).fields}
            if EXTRA_COLUMN in names:
                return f"is keep, which fills the column {EXTRA_COLUMN}; declare it under another name"
        return None

    @property
    def format(self) -> str:
        """The name of the format of values."""
        return self.value if isinstance(self.value, str) else self.value.format

    def record_columns(self, kafka: KafkaColumns) -> RecordColumns:
        """The columns of rows that are not from the value, without the types of a key that its table says.

        Args:
            kafka: Those of Kafka's own.
        """
        headers = tuple(header.column(name) for name, header in self.headers.items())
        return RecordColumns(kafka, self.key.columns if self.key else None, headers, self.schema_id)

    @property
    def schema_source(self) -> SchemaSource:
        """Where the schema of the rows is from."""
        match self.schema_text:
            case "registry" | "table" | "infer" as source:
                return source
            case _:
                return "declared"

    @property
    def declares_all(self) -> bool:
        """Whether the file declares all columns, those of the key as well, so that a table can be made of it alone."""
        return self.schema_source == "declared" and (self.key is None or self.key.schema_source == "declared")

    @property
    def of_table(self) -> str | None:
        """What leaves columns to the table, as messages call it; None if nothing does."""
        if self.schema_source == "table":
            return "decode.schema"
        return "decode.key.schema" if self.key is not None and self.key.schema_source == "table" else None

    @property
    def needs_registry(self) -> bool:
        """Whether values or keys can only be decoded with schemas of a registry."""
        return bool(self.of_registry)

    @property
    def of_registry(self) -> str:
        """What can only be decoded with schemas of a registry, as messages call it; empty if nothing."""
        formats = {"values": self.format, "keys": self.key.format if self.key else ""}
        return " and ".join(f"{what} as {name}" for what, name in formats.items() if name in REGISTRY_FORMATS)

    @property
    def declared(self) -> ResolvedSchema | None:
        """The rows that values become, and their decoder, if the file declares them; None if a table says."""
        if self.schema_source != "declared":
            return None
        found = resolved(DecoderSpec(self.format, DeclaredSchema(self.schema_text), self.options))
        return replace(found, schema=self.with_extra_column(found.schema))

    def with_extra_column(self, rows: Schema) -> Schema:
        """The columns of a new table: with the one for what no other takes, if that is kept."""
        return with_extra_column(rows) if self.unknown_fields == "keep" else rows

    def resolved_for(self, rows: Schema, aliases: Aliases = ()) -> ResolvedSchema:
        """The rows that values become, and their decoder.

        Args:
            rows: The table's columns, without those that say where rows came from.
            aliases: Of the table's columns.
        """
        found = self.declared or resolved_rows(self.format, rows, self.options)
        if aliases and self.format not in COLUMN_TYPES:
            found = found.with_options({NAME_RULE: NameRule(aliases, self.case_insensitive)})
        if self.unknown_fields != "keep" or EXTRA_COLUMN in {each.name for each in rows.fields}:
            return found
        # The driver adds it when a record needs it.
        return replace(found, schema=without_extra_column(found.schema)).with_options({"extra_column": False})

    @property
    def options(self) -> dict[str, Any]:
        """Those of the format, by name."""
        options = {} if isinstance(self.value, str) else self.value.model_dump(exclude={"format"})
        if self.format not in COLUMN_TYPES:
            options["unknown_fields"] = self.unknown_fields
            if self.case_insensitive:
                options[NAME_RULE] = NameRule(any_case=True)
        return options


def _source_problem(format_: str, source: SchemaSource, known: tuple[SchemaSource, ...]) -> str:
    others = [each for each in known if each != "declared"]
    also = f", or {' or '.join(others)}" if others else ""
    return f"of values of the format {format_} cannot be '{source}'; write the columns, such as 'id string'{also}"
