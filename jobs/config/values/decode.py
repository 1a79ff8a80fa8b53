"""Decode block of a stream's YAML file: how values, keys and headers become columns, and the origin of the schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)
from pyiceberg.schema import Schema

from jobs.config.documents.base import (
    ChangesRows,
    Flag,
    Problem,
    Problems,
    SpecModel,
    problems_at,
)
from jobs.config.values.fields import schema_text as checked_schema
from jobs.config.values.value_format import (
    REGISTRY_FORMATS,
    SOURCES,
    SchemaSource,
    ValueFormat,
    hashed_format,
)
from jobs.records.formats.interface.decoder_spec import (
    DeclaredSchema,
    DecoderSpec,
    ResolvedSchema,
    UnresolvedSchema,
    declared_of,
    resolved,
    resolved_rows,
)
from jobs.records.formats.own.format import own_decoder_problem
from jobs.records.formats.primitive.block import COLUMN_TYPES, schema_problem
from jobs.records.formats.record_columns import (
    BYTES_TYPES,
    TEXT_TYPES,
    HeaderColumn,
    KeyColumns,
    RecordColumns,
    SchemaIdPlace,
)
from jobs.records.schema.declared import Field as DeclaredField
from jobs.records.schema.declared import Primitive, quoted
from jobs.records.schema.kafka_columns import KafkaColumns
from jobs.records.schema.name_matching import NAME_RULE, Aliases, NameRule
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import EXTRA_COLUMN, with_extra_column, without_extra_column
from jobs.records.schema.tokens import SchemaTextError

_INTO = re.compile(r"\s*(.+?)(\s+not\s+null)?\s*", re.IGNORECASE | re.DOTALL)
_OWN = ("into", "schema", "unknown_fields", "subject")


def _column_and_required(into: str) -> tuple[str, bool]:
    match = _INTO.fullmatch(into)
    name = match[1] if match else into
    bare = name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name
    return bare, bool(match and match[2])


def _into(value: str) -> str:
    name, required = _column_and_required(value)
    _declared(name, f"string{' not null' if required else ''}")
    return value


def _schema(value: object) -> object:
    return value if value in ("registry", "table", "infer") else checked_schema(value)


def _schema_source(text: str | None) -> SchemaSource:
    match text:
        case "registry" | "table" | "infer" as source:
            return source
        case _:
            return "declared"


class DecodeKey(SpecModel):
    """How the bytes of a record's key become columns.

    Args:
        form: Format of keys: a name, or ``format`` with its options beside it.
        into: Column that takes the key as one value or as a struct. ``not null`` behind the name refuses records
            without a key.
        schema_text: The columns of the key as schema text, or their origin: ``registry``, ``table`` or ``infer``.
        unknown_fields: Fields of a key without a column are ignored, or fail the record.
        subject: Subject whose newest version makes the struct. Without it, the topic's name with ``-key``.
    """

    example = "{format: string, into: key}"

    form: Annotated[ValueFormat, Field(alias="@form")]
    into: Annotated[str, AfterValidator(_into)] | None = None
    schema_text: Annotated[Annotated[str, BeforeValidator(_schema)] | None, Field(alias="schema")] = None
    unknown_fields: Literal["ignore", "fail"] = "ignore"
    subject: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _apart(cls, data: Any) -> Any:
        """Separate the options of the format, which the file has beside the key's."""
        if not isinstance(data, dict):
            return data
        own = {name: data[name] for name in _OWN if name in data}
        options = {name: value for name, value in data.items() if name not in _OWN}
        return own | {"@form": options.get("format") if options.keys() <= {"format"} else options}

    @model_serializer(mode="wrap")
    def _together(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        data = dict(handler(self))
        form = data.pop("@form")
        return ({"format": form} if isinstance(form, str) else form) | data

    def _problems(self) -> Problems:
        if self.format in COLUMN_TYPES:
            if (self.into is None) == (self.schema_text is None) or self.schema_text in ("registry", "table", "infer"):
                yield (), f"a key as {self.format} is one column: say which with into, such as into: key"
            elif self.schema_text and (problem := schema_problem(self.format, parse_schema(self.schema_text))):
                yield ("schema",), problem
            if self.unknown_fields != "ignore":
                yield ("unknown_fields",), f"is about fields; keys of the format {self.format} have none"
        elif self.schema_text is None:
            yield ("schema",), "is required: the columns of a key, such as 'id long not null'"
        elif self.schema_source != "declared" and (problem := self._source_problem):
            yield ("schema",), problem
        elif self.format == "own":
            if self.unknown_fields != "ignore":
                yield ("unknown_fields",), "is up to the decoder, of keys of the format own"
            elif problem := own_decoder_problem(self.columns.decoder):
                yield ("schema",), problem
        if self.subject is not None and self.format not in REGISTRY_FORMATS:
            yield ("subject",), f"is of a registry; keys of the format {self.format} have no schema there"

    @property
    def _source_problem(self) -> str | None:
        """Return why the columns cannot come from the origin in the file; None if they can."""
        if self.schema_source not in SOURCES[self.format]:
            others = " or ".join(f"'{each}'" for each in SOURCES[self.format] if each != "declared")
            said = f"of keys of the format {self.format} cannot be '{self.schema_text}': write the columns"
            return f"{said}, or {others}" if others else said
        if self.into is None:
            return (
                f"is '{self.schema_text}', which goes with into, such as into: key: the fields of that column, a "
                "struct, are a key's; or write the columns, such as 'id long not null'"
            )
        return None

    @property
    def format(self) -> str:
        """Name of the keys' format."""
        return self.form if isinstance(self.form, str) else self.form.format

    @property
    def schema_source(self) -> SchemaSource:
        """Origin of a key's columns."""
        return _schema_source(self.schema_text)

    @property
    def options(self) -> dict[str, Any]:
        """Options of a format with fields, by name."""
        options = {} if isinstance(self.form, str) else self.form.model_dump(exclude={"format"})
        return options | {"unknown_fields": self.unknown_fields}

    @property
    def columns(self) -> KeyColumns:
        """Columns of a key, without types that only the table has."""
        into, required = _column_and_required(self.into) if self.into else (None, False)
        if self.format in COLUMN_TYPES:
            declared = self.schema_text
            if declared is None:
                suffix = " not null" if required else ""
                declared = f"{quoted(into or '')} {COLUMN_TYPES[self.format]}{suffix}"
            return KeyColumns(DecoderSpec(self.format, DeclaredSchema(declared)))
        declared = self.schema_source == "declared"
        schema = DeclaredSchema(self.schema_text or "") if declared else UnresolvedSchema()
        return KeyColumns(DecoderSpec(self.format, schema, self.options), into, required)


def hashed_key(_: Any, key: DecodeKey) -> Any:
    """Return what of the key changes rows."""
    columns = key.columns
    return {
        "format": hashed_format(key, key.form),
        "schema": declared_of(columns.decoder).text if columns.is_resolved else key.schema_text,
        "into": columns.into,
        "required": columns.required,
        "unknown_fields": key.unknown_fields,
    }


class DecodeHeader(SpecModel):
    """How a header becomes a column.

    Args:
        type: Type of the column. ``not null`` behind it refuses records without the header.
        header: Name of the header. Without it, the column's name.
        how: Encoding of the header: ``text`` in UTF-8, or ``bytes`` as Kafka's serializers write them.
    """

    example = "{type: string}"

    type: str
    header: Annotated[str, Field(min_length=1)] | None = None
    how: Annotated[Literal["text", "bytes"], Field(alias="as")] = "text"

    _short: ClassVar[str] = "type"

    def _problems(self) -> Problems:
        declared = _declared("header", self.type).type
        allowed = BYTES_TYPES if self.how == "bytes" else TEXT_TYPES
        if not isinstance(declared, Primitive) or declared.name not in allowed:
            among = ", ".join(allowed)
            yield ("type",), f"of a header as {self.how} must be one of {among}; found {declared}"
        elif declared.encoding == "unscaled":
            plain = replace(declared, encoding=None)
            said = f"of a header cannot be {declared}: headers have numbers with their point; write {plain}"
            yield ("type",), said

    def column(self, name: str) -> HeaderColumn:
        """Return the header's column with a name."""
        return HeaderColumn(_declared(name, self.type), self.header or name, self.how == "bytes")


def _declared(name: str, type_: str) -> DeclaredField:
    try:
        fields = parse_schema(f"{quoted(name)} {type_}").fields
    except SchemaTextError as error:
        raise ValueError(error.message) from None
    if len(fields) != 1:
        raise ValueError("must be one type, such as string or long not null")
    return fields[0]


def _named(headers: dict[str, DecodeHeader]) -> dict[str, DecodeHeader]:
    problems: list[Problem] = []
    names: dict[str, str] = {}
    for name, header in headers.items():
        try:
            header.column(name)
        except ValueError as problem:
            problems.append(((name,), str(problem)))
        if (other := names.setdefault(name.casefold(), name)) != name:
            problems.append(((name,), f"differs from '{other}' by case only"))
    if problems:
        raise problems_at(problems)
    return headers


Headers = Annotated[dict[str, DecodeHeader], AfterValidator(_named)]
"""Columns from headers, by the column's name."""


def hashed_headers(_: Any, headers: Mapping[str, DecodeHeader]) -> Any:
    """Return what of the headers changes rows; their order is that of the columns."""
    columns = [header.column(name) for name, header in headers.items()]
    return [[str(each.column), each.header, "bytes" if each.as_bytes else "text"] for each in columns]


def _hashed_schema(_: Any, text: str) -> str:
    return text if text in ("registry", "table", "infer") else parse_schema(text).text


class Decode(SpecModel):
    """How bytes become typed columns.

    Args:
        value: Format of values: a name, or a mapping with ``format`` and options.
        schema_text: The columns as schema text, or their origin: ``registry``, ``table`` or ``infer``.
        unknown_fields: Fields of a value without a column are ignored and counted, fail the record, or are kept as JSON
            in ``_extra``.
        case_insensitive: Matches a field to a column whose name differs by case only.
        subject: Subject whose newest version makes the table and is watched. Without it, the topic's name with
            ``-value``.
        key: Columns from the record's key.
        schema_id: Where a record names its writer schema: in a prefix of the value, in a header, or either. For formats
            with a registry.
        headers: Columns from the record's headers, by column name.
    """

    example = "{value: json, schema: 'id string not null, created_at timestamptz', headers: {trace: string}}"

    value: Annotated[ValueFormat, ChangesRows(written=hashed_format)]
    schema_text: Annotated[
        str, BeforeValidator(_schema), Field(alias="schema"), ChangesRows(("decode", "schema"), _hashed_schema)
    ]
    unknown_fields: Annotated[Literal["ignore", "fail", "keep"], ChangesRows()] = "ignore"
    case_insensitive: Annotated[Flag, ChangesRows(unless=False)] = False
    subject: str | None = None
    key: Annotated[DecodeKey | None, ChangesRows(written=hashed_key, unless=None)] = None
    schema_id: Annotated[SchemaIdPlace, ChangesRows(unless="both")] = "both"
    headers: Annotated[Headers, ChangesRows(written=hashed_headers, unless={})] = Field(default_factory=dict)

    def _problems(self) -> Problems:
        known = SOURCES.get(self.format, ("declared",))
        if self.schema_source not in known:
            yield ("schema",), _source_problem(self.format, self.schema_source, known)
        elif self.unknown_fields == "keep" and (problem := self._keep_problem()):
            yield ("unknown_fields",), problem
        elif self.format in COLUMN_TYPES:
            if problem := schema_problem(self.format, parse_schema(self.schema_text)):
                yield ("schema",), problem
            if self.unknown_fields != "ignore":
                yield ("unknown_fields",), f"is about keys of JSON; values of the format {self.format} have none"
            if self.case_insensitive:
                yield ("case_insensitive",), f"is about names of fields; values of {self.format} have none"
        elif self.format == "own":
            yield from self._own_problems()

    def _own_problems(self) -> list[Problem]:
        """Return problems of keys that the user's own decoder does not support."""
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
        """Name of the values' format."""
        return self.value if isinstance(self.value, str) else self.value.format

    def record_columns(self, kafka: KafkaColumns) -> RecordColumns:
        """Return the columns that do not come from the value, without types of a key that only the table has."""
        headers = tuple(header.column(name) for name, header in self.headers.items())
        return RecordColumns(kafka, self.key.columns if self.key else None, headers, self.schema_id)

    @property
    def schema_source(self) -> SchemaSource:
        """Origin of the rows' schema."""
        return _schema_source(self.schema_text)

    @property
    def declares_all(self) -> bool:
        """Whether the file declares all columns, including the key's, so that it suffices to create a table."""
        return self.schema_source == "declared" and (self.key is None or self.key.schema_source == "declared")

    @property
    def of_table(self) -> str | None:
        """Name, for messages, of the key that leaves columns to the table; None if there is none."""
        if self.schema_source == "table":
            return "decode.schema"
        return "decode.key.schema" if self.key is not None and self.key.schema_source == "table" else None

    @property
    def needs_registry(self) -> bool:
        """Whether decoding values or keys needs schemas of a registry."""
        return bool(self.of_registry)

    @property
    def of_registry(self) -> str:
        """Name, for messages, of what needs schemas of a registry; empty if nothing does."""
        formats = {"values": self.format, "keys": self.key.format if self.key else ""}
        return " and ".join(f"{what} as {name}" for what, name in formats.items() if name in REGISTRY_FORMATS)

    @property
    def declared(self) -> ResolvedSchema | None:
        """Columns that values become, and their decoder, if the file declares them; otherwise None."""
        if self.schema_source != "declared":
            return None
        found = resolved(DecoderSpec(self.format, DeclaredSchema(self.schema_text), self.options))
        return replace(found, schema=self.with_extra_column(found.schema))

    def with_extra_column(self, rows: Schema) -> Schema:
        """Return the columns of a new table: with `_extra` if fields without a column are kept."""
        return with_extra_column(rows) if self.unknown_fields == "keep" else rows

    def resolved_for(self, rows: Schema, aliases: Aliases = ()) -> ResolvedSchema:
        """Return the columns that values become, and their decoder.

        Args:
            rows: Columns of the table, without Kafka's.
            aliases: Aliases of the table's columns.
        """
        found = self.declared or resolved_rows(self.format, rows, self.options)
        if aliases and self.format not in COLUMN_TYPES:
            found = found.with_options({NAME_RULE: NameRule(aliases, self.case_insensitive)})
        if self.unknown_fields != "keep" or EXTRA_COLUMN in {each.name for each in rows.fields}:
            return found
        # The driver adds `_extra` when a record needs it.
        return replace(found, schema=without_extra_column(found.schema)).with_options({"extra_column": False})

    @property
    def options(self) -> dict[str, Any]:
        """Options of the format, by name."""
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


def value_subjects(decode: Decode, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the subjects of values: the one in the file, else each topic's; empty if values name no schema."""
    return _subjects(decode.format, decode.subject, topics, "value")


def key_subjects(decode: Decode, topics: Iterable[str]) -> tuple[str, ...]:
    """Return the subjects of keys: the one in the file, else each topic's; empty if keys name no schema."""
    return _subjects(decode.key.format, decode.key.subject, topics, "key") if decode.key else ()


def _subjects(format_: str, named: str | None, topics: Iterable[str], part: str) -> tuple[str, ...]:
    if format_ not in REGISTRY_FORMATS:
        return ()
    return (named,) if named is not None else tuple(f"{topic}-{part}" for topic in topics)
