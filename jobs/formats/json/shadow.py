"""Shadow columns: a value that its column does not take lands as JSON text in the column `NAME_text` beside it.

The column itself is null then. A value within a list or a map takes all of the list or map with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from jobs.formats.json.healing import ColumnAt
from jobs.formats.problems import (
    BAD_BINARY,
    BAD_DATE,
    BAD_TIMESTAMP,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_TYPE,
)
from jobs.schema.declared import Field, Primitive, StructType
from jobs.schema.needs import Path

CLASHES = frozenset({WRONG_TYPE, OUT_OF_RANGE, PRECISION_LOSS, BAD_TIMESTAMP, BAD_DATE, BAD_BINARY})
"""What is wrong with a value and not with its record."""

_SUFFIX = "_text"
_NULL = msgspec.Raw(b"null")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Shadow(NamedTuple):
    """A column and the one beside it.

    Attributes:
        place: Names of the members in the record, from its top to the value.
        path: Of the column beside it.
        exists: Whether the table has it.
    """

    place: tuple[str, ...]
    path: Path
    exists: bool


def shadow_of(declared: StructType, column: ColumnAt) -> Shadow | None:
    """The column beside one whose value clashes; None if there can be none.

    Args:
        declared: The columns.
        column: What a failure is about.
    """
    struct, place = declared, list[str]()
    for token in column.tokens:
        if not isinstance(token, str):
            break
        place.append(token)
        field = next(each for each in struct.fields if each.name == token)
        if not isinstance(field.type, StructType) or len(place) == len(column.tokens):
            break
        struct = field.type
    if not place:
        return None
    fields = {each.name: each for each in struct.fields}
    beside = fields.get(place[-1] + _SUFFIX)
    if fields[place[-1]].required or (beside is not None and beside.type != Primitive("string")):
        return None
    return Shadow(tuple(place), (*place[:-1], place[-1] + _SUFFIX), beside is not None)


def with_shadow(columns: StructType, path: Path) -> StructType:
    """The columns with another one, of texts."""
    name, *rest = path
    if not rest:
        return StructType((*columns.fields, Field(name, Primitive("string"))))
    return StructType(
        tuple(
            replace(each, type=with_shadow(each.type, tuple(rest)))
            if each.name == name and isinstance(each.type, StructType)
            else each
            for each in columns.fields
        )
    )


def with_text(record: bytes, shadow: Shadow) -> bytes | None:
    """The record with a value as text beside itself; None if it has a member there already."""
    try:
        return _rewritten(record, shadow.place)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _rewritten(token: Any, place: tuple[str, ...]) -> bytes | None:
    members = _object(token)
    name, *rest = place
    if name not in members:
        return None
    if rest:
        inner = _rewritten(members[name], tuple(rest))
        return None if inner is None else msgspec.json.encode(members | {name: msgspec.Raw(inner)})
    if name + _SUFFIX in members:
        return None
    text = bytes(members[name]).strip().decode()
    return msgspec.json.encode(members | {name: _NULL, name + _SUFFIX: text})
