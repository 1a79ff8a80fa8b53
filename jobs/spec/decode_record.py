"""Keys and headers in the decode block of a stream's YAML file: which columns rows have of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from jobs.formats.decoder_spec import DeclaredSchema, DecoderSpec, UnresolvedSchema, declared_of
from jobs.formats.header_values import BYTES_TYPES, TEXT_TYPES
from jobs.formats.own.format import own_decoder_problem
from jobs.formats.primitive.schema import COLUMN_TYPES, schema_problem
from jobs.formats.record_columns import HeaderColumn, KeyColumns
from jobs.schema.declared import Field as DeclaredField
from jobs.schema.declared import Primitive, quoted
from jobs.schema.parser import parse_schema
from jobs.schema.tokens import SchemaTextError
from jobs.spec.base import Location, SpecModel, problems_at
from jobs.spec.fields import schema_text as checked_schema
from jobs.spec.value_format import REGISTRY_FORMATS, SOURCES, SchemaSource, hashed_format

_INTO = re.compile(r"\s*(.+?)(\s+not\s+null)?\s*", re.IGNORECASE | re.DOTALL)
_OWN = ("into", "schema", "unknown_fields", "subject")


def _into(value: str) -> str:
    match = _INTO.fullmatch(value)
    name = match[1] if match else value
    bare = name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name
    _declared(bare, f"string{' not null' if match and match[2] else ''}")
    return value


def _key_schema(value: object) -> object:
    return value if value in ("registry", "table", "infer") else checked_schema(value)


class KeyDecode(SpecModel):
    """How the bytes of a record's key become columns; what its format may be is `jobs.spec.decode`'s to say.

    Args:
        form: Name of the format of keys, or the name with options, as of values.
        into: The one column that takes a key: of a key that is one value, or a struct of its columns. With ``not null``
            a record without a key is refused.
        schema_text: The columns of a key, in the language of ``jobs.schema.parser``; or where those of the struct are
            from: ``registry``, ``table``, ``infer``.
        unknown_fields: What becomes of fields of a key that no column takes.
        subject: Of the registry, whose newest version makes the struct; without it the topic's name with ``-key``
            behind it. Keys say themselves which schema they have.
    """

    form: Annotated[Any, Field(alias="@form")]
    into: Annotated[str, AfterValidator(_into)] | None = None
    schema_text: Annotated[Annotated[str, BeforeValidator(_key_schema)] | None, Field(alias="schema")] = None
    unknown_fields: Literal["ignore", "fail"] = "ignore"
    subject: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _apart(cls, data: Any) -> Any:
        """A format's own options stand beside the key's."""
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

    @model_validator(mode="after")
    def _parts_agree(self) -> KeyDecode:
        problems: list[tuple[Location, str]] = []
        if self.format in COLUMN_TYPES:
            if (self.into is None) == (self.schema_text is None) or self.schema_text in ("registry", "table", "infer"):
                problems.append(((), f"a key as {self.format} is one column: say which with into, such as into: key"))
            elif self.schema_text and (problem := schema_problem(self.format, parse_schema(self.schema_text))):
                problems.append((("schema",), problem))
            if self.unknown_fields != "ignore":
                problems.append((("unknown_fields",), f"is about fields; keys of the format {self.format} have none"))
        elif self.schema_text is None:
            problems.append((("schema",), "is required: the columns of a key, such as 'id long not null'"))
        elif self.schema_source != "declared" and (problem := self._source_problem):
            problems.append((("schema",), problem))
        elif self.format == "own":
            if self.unknown_fields != "ignore":
                problems.append((("unknown_fields",), "is up to the decoder, of keys of the format own"))
            elif problem := own_decoder_problem(self.columns.decoder):
                problems.append((("schema",), problem))
        if self.subject is not None and self.format not in REGISTRY_FORMATS:
            problems.append((("subject",), f"is of a registry; keys of the format {self.format} have no schema there"))
        if problems:
            raise problems_at(problems)
        return self

    @property
    def _source_problem(self) -> str | None:
        """Why the columns cannot be from where the file says."""
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
        """The name of the format of keys."""
        return self.form if isinstance(self.form, str) else self.form.format

    @property
    def schema_source(self) -> SchemaSource:
        """Where the columns of a key are from."""
        match self.schema_text:
            case "registry" | "table" | "infer" as source:
                return source
            case _:
                return "declared"

    @property
    def options(self) -> dict[str, Any]:
        """Those of a format with fields, by name."""
        options = {} if isinstance(self.form, str) else self.form.model_dump(exclude={"format"})
        return options | {"unknown_fields": self.unknown_fields}

    @property
    def columns(self) -> KeyColumns:
        """What rows have of a key, without the types that its table says."""
        into, required = self._target
        if self.format in COLUMN_TYPES:
            declared = self.schema_text
            if declared is None:
                suffix = " not null" if required else ""
                declared = f"{quoted(into or '')} {COLUMN_TYPES[self.format]}{suffix}"
            return KeyColumns(DecoderSpec(self.format, DeclaredSchema(declared)))
        declared = self.schema_source == "declared"
        schema = DeclaredSchema(self.schema_text or "") if declared else UnresolvedSchema()
        return KeyColumns(DecoderSpec(self.format, schema, self.options), into, required)

    @property
    def _target(self) -> tuple[str | None, bool]:
        match = _INTO.fullmatch(self.into or "")
        if match is None:
            return None, False
        name = match[1]
        bare = name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name
        return bare, bool(match[2])


def hashed_key(_: Any, key: KeyDecode) -> Any:
    """What of the key changes rows."""
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
        type: The column's type, with ``not null`` where a record without the header is refused.
        header: The header's name; without it the column's.
        how: ``text`` in UTF-8, or ``bytes`` as Kafka's serializers write them.
    """

    type: str
    header: Annotated[str, Field(min_length=1)] | None = None
    how: Annotated[Literal["text", "bytes"], Field(alias="as")] = "text"

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"type": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _fits(self) -> DecodeHeader:
        declared = _declared("header", self.type).type
        allowed = BYTES_TYPES if self.how == "bytes" else TEXT_TYPES
        if not isinstance(declared, Primitive) or declared.name not in allowed:
            among = ", ".join(allowed)
            raise problems_at([(("type",), f"of a header as {self.how} must be one of {among}; found {declared}")])
        if declared.encoding == "unscaled":
            plain = replace(declared, encoding=None)
            said = f"of a header cannot be {declared}: headers have numbers with their point; write {plain}"
            raise problems_at([(("type",), said)])
        return self

    def column(self, name: str) -> HeaderColumn:
        """What rows have of the header, in the column of a name."""
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
    problems: list[tuple[Location, str]] = []
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
    """What of the headers changes rows: the order is that of the columns."""
    columns = [header.column(name) for name, header in headers.items()]
    return [[str(each.column), each.header, "bytes" if each.as_bytes else "text"] for each in columns]
