"""JSON records: objects, or single values, of the types that a stream or a writer schema declares."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pyiceberg import types as ice

from jobs.formats.json.writer_decoder import VALUE_COLUMN, JsonWriterTypes
from jobs.formats.problems import (
    EMPTY_VALUE,
    INVALID_UTF8,
    MALFORMED_JSON,
    MISSING_FIELD,
    NOT_AN_OBJECT,
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    WRONG_TYPE,
)
from jobs.generate.json_encoding import json_members, json_shape, json_text, json_value
from jobs.generate.rows import Row, drawn_row
from jobs.generate.shape import Struct, narrowed
from jobs.schema.declared import Field, ListType, MapType, Primitive, StructType

_LARGEST = {"int": 2**31 - 1, "long": 2**63 - 1}


class JsonEncoder:
    """Writes rows as JSON.

    Args:
        types: What the records are.
        sends_null: Whether null is written; otherwise what is null is left out of its object.

    Attributes:
        shape: Of the rows.
    """

    def __init__(self, types: JsonWriterTypes, *, sends_null: bool = True) -> None:
        self._types: JsonWriterTypes = types
        self._sends_null: bool = sends_null
        self.shape: Struct = json_shape(types.declared)

    def encode(self, row: Row) -> bytes:
        """The JSON of a row."""
        return json_text(self.value(row))

    def value(self, row: Row) -> Any:
        """What JSON is written of: a dict of the row's members, or a single value."""
        if self._types.single:
            return json_value(self._types.declared.fields[0].type, row.get(VALUE_COLUMN))
        members = json_members(self._types.declared, row)
        return members if self._sends_null else _without_null(members)


class JsonGenerator:
    """Makes JSON of declared columns.

    Args:
        types: What the records are.
        columns: Those that have to take them, where they are others.
        refuses_more: Whether a record is refused for a field that no column takes.
        evolves: Whether the table follows its records, so that what it does not hold is not always refused.
        sends_null: Whether null is written.

    Raises:
        FrazilError: A column is written in a way that this does not know.
    """

    def __init__(
        self,
        types: JsonWriterTypes,
        columns: Iterable[ice.NestedField] | None = None,
        *,
        refuses_more: bool = False,
        evolves: bool = False,
        sends_null: bool = True,
    ) -> None:
        declared = types.declared
        self._single: bool = types.single
        self.encoder: JsonEncoder = JsonEncoder(types, sends_null=sends_null)
        self._shape: Struct = self.encoder.shape
        if columns is not None:
            self._shape = narrowed(self._shape, columns, refuses_more=refuses_more)
        named = {} if types.single or evolves else {each.name: each for each in declared.fields}
        self._required: tuple[str, ...] = tuple(name for name, each in named.items() if each.required)
        if types.defaults is not None:
            self._required = ()
        self._bounded: dict[str, int] = {name: most for name, each in named.items() if (most := _most(each))}
        # Nothing is of a wrong type where any value is taken.
        self._typed: dict[str, Field] = {
            name: each
            for name, each in named.items()
            if not (isinstance(each.type, Primitive) and each.type.name == "json")
        }
        kinds = {
            "truncated_json": (MALFORMED_JSON, True),
            "not_an_object": (NOT_AN_OBJECT, not types.single),
            "empty_value": (EMPTY_VALUE, True),
            "invalid_utf8": (INVALID_UTF8, True),
            "wrong_type": (WRONG_TYPE, self._typed),
            "missing_field": (MISSING_FIELD, self._required),
            "null_in_required": (NULL_IN_REQUIRED, self._required),
            "out_of_range": (OUT_OF_RANGE, self._bounded),
        }
        self.bad_kinds: Mapping[str, str] = {kind: found for kind, (found, possible) in kinds.items() if possible}

    def good(self, rng: random.Random, at: datetime) -> bytes:
        """A value that lands; optional columns are now and then null or not there."""
        return self.encoder.encode(drawn_row(self._shape, rng, at))

    def bad(self, kind: str, rng: random.Random, at: datetime) -> bytes:
        """A value that becomes a dead letter of this kind."""
        made = self.encoder.value(drawn_row(self._shape, rng, at))
        match kind:
            case "empty_value":
                return b""
            case "not_an_object":
                return rng.choice((b"[1,2]", b"null", b'"text"', b"17"))
            case "truncated_json":
                value = json_text(made)
                # Cut within the object, so that no prefix of it is JSON.
                return value[: rng.randrange(1, len(value))] if made and not self._single else b"{"
            case "invalid_utf8":
                return b'{"\xff":' + json_text(made) + b"}"
            case "wrong_type":
                field = rng.choice(tuple(self._typed.values()))
                made[field.name] = _of_another_type(field)
            case "missing_field":
                made.pop(rng.choice(self._required))
            case "null_in_required":
                made[rng.choice(self._required)] = None
            case _:
                name = rng.choice(tuple(self._bounded))
                made[name] = self._bounded[name] + 1
        return json_text(made)


def _most(field: Field) -> int | None:
    if not isinstance(field.type, Primitive) or field.type.encoding == "text":
        return None
    return _LARGEST.get(field.type.name)


def _of_another_type(field: Field) -> Any:
    match field.type:
        case Primitive() | StructType() | MapType(carried="object"):
            return [[]]
        case ListType() | MapType():
            return {"a": 1}


def _without_null(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_null(each) for name, each in value.items() if each is not None}
        case list():
            return [_without_null(each) for each in value]
        case _:
            return value
