"""Decoded columns of a stream whose steps change columns that no file declares, kept as a property of its table.

Such a table has the steps' output and does not show the columns before them. So those columns are kept with it, under
the stream's name, and change in the commit that changes the table. A stamp names by a digest the columns that its batch
was decoded by; these stay until a later batch has landed. So do the columns of a batch that may be running while
somebody else changes them. Pure.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import msgspec
from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import StructType

from jobs.base.errors import FrazilError
from jobs.base.system.typed_json import decode_json
from jobs.records.schema.compatibility import promotes
from jobs.records.schema.name_matching import Aliases

PART_PREFIX = "frazil.part."
_MARK = 10
_FIRST = re.compile(r"~(\d{1,6})~", re.ASCII)


def properties_in_parts(properties: Mapping[str, str], limit: int | None) -> dict[str, str]:
    """Return a table's properties, with those that are too long split into parts.

    Args:
        limit: Limit in bytes of UTF-8; None for no limit.
    """
    found: dict[str, str] = {}
    for name, text in properties.items():
        if limit is None or len(text.encode()) <= limit:
            found[name] = text
            continue
        # A character has at most four bytes.
        size = (limit - _MARK) // (1 if text.isascii() else 4)
        first, *others = (text[at : at + size] for at in range(0, len(text), size))
        found[name] = f"~{1 + len(others)}~{first}"
        found |= {f"{PART_PREFIX}{number}.{name}": part for number, part in enumerate(others, start=2)}
    return found


def whole_property(properties: Mapping[str, str], name: str) -> str | None:
    """Return a table property's whole text, also of a long one in parts; None if the property does not exist.

    Raises:
        ValueError: Parts of it are missing.
    """
    text = properties.get(name)
    mark = _FIRST.match(text) if text else None
    if text is None or mark is None:
        return text
    numbers = range(2, int(mark[1]) + 1)
    if missing := [number for number in numbers if f"{PART_PREFIX}{number}.{name}" not in properties]:
        raise ValueError(f"the table property {PART_PREFIX}{missing[0]}.{name} is missing, a part of {name}")
    return text[mark.end() :] + "".join(properties[f"{PART_PREFIX}{number}.{name}"] for number in numbers)


_PREFIX = "frazil.decoded."
_DIGITS = 12
_MOST_FORMER = 3


@dataclass(frozen=True)
class DecodedColumns:
    """Columns of rows as they are decoded, before a stream's steps.

    Attributes:
        rows: Columns of values, with field ids of their own.
        key: The struct column of a key, alone in a schema; None if the file declares the key's columns, or there are
            none.
        aliases: Their other names in records, from the table's name mapping at the time when the table defined them.
        keyless: Whether records have no keys, though the file says that their columns are inferred.
    """

    rows: Schema
    key: Schema | None = None
    aliases: Aliases = ()
    keyless: bool = False

    @cached_property
    def digest(self) -> str:
        """Return a short hexadecimal digest of these columns."""
        return hashlib.sha256(msgspec.json.encode(_packed(self))).hexdigest()[:_DIGITS]


def key_as_widened(key: Schema, table: Schema) -> Schema:
    """Return the column of a key with the wider types that its fields have got in the table since."""
    kind, named = key.fields[0].field_type, {each.name: each.field_type for each in table.fields}
    there = named.get(key.fields[0].name)
    if not isinstance(kind, StructType) or not isinstance(there, StructType):
        return key
    wider = {each.name: each.field_type for each in there.fields}
    fields = [
        each.model_copy(update={"field_type": wider[each.name]})
        if each.name in wider and promotes(each.field_type, wider[each.name])
        else each
        for each in kind.fields
    ]
    return Schema(key.fields[0].model_copy(update={"field_type": StructType(*fields)}))


class _Packed(msgspec.Struct, frozen=True, omit_defaults=True):
    rows: str
    key: str = ""
    names: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    keyless: bool = False


class _Kept(msgspec.Struct, frozen=True, omit_defaults=True):
    """The property's value: the columns, and former ones that a stamp names, or may still name."""

    columns: _Packed
    former: tuple[_Packed, ...] = ()


def _packed(columns: DecodedColumns) -> _Packed:
    key = columns.key.model_dump_json() if columns.key else ""
    return _Packed(columns.rows.model_dump_json(), key, columns.aliases, columns.keyless)


def _unpacked(packed: _Packed) -> DecodedColumns:
    key = Schema.model_validate_json(packed.key) if packed.key else None
    return DecodedColumns(Schema.model_validate_json(packed.rows), key, packed.names, packed.keyless)


def decoded_property(stream: str) -> str:
    """Return the name of the table property that keeps the decoded columns of a stream."""
    return f"{_PREFIX}{stream}"


def decoded_columns(properties: Mapping[str, str], stream: str) -> DecodedColumns | None:
    """Return the columns before a stream's steps, as its table keeps them; None if it keeps none.

    Raises:
        FrazilError: The property cannot be read.
    """
    return next(iter(_kept(properties, stream)), None)


def decoded_digest(properties: Mapping[str, str], stream: str) -> str | None:
    """Return the digest of these columns; raises as `decoded_columns` does."""
    found = decoded_columns(properties, stream)
    return found.digest if found else None


def decoded_properties(
    properties: Mapping[str, str], stream: str, columns: DecodedColumns, *stamped: str | None, under_way: bool = False
) -> dict[str, str]:
    """Return the property with other columns; former ones stay in it if the stream's newest stamps name them.

    Args:
        properties: Properties of the table.
        stream: The stream's id.
        columns: The columns from now on.
        stamped: Digests in the newest stamps, of the table and of the coordinator; None for a stamp without one.
        under_way: Whether a batch may run with any of the known columns, as the caller is not the stream's driver.
    """
    known = [each for each in _kept(properties, stream) if each.digest != columns.digest]
    former = [each for each in known if each.digest in stamped]
    former += [each for each in known if under_way and each.digest not in stamped][:_MOST_FORMER]
    kept = _Kept(_packed(columns), tuple(map(_packed, former)))
    return {decoded_property(stream): msgspec.json.encode(kept).decode()}


def properties_as_decided(properties: Mapping[str, str], stream: str, digest: str) -> dict[str, str]:
    """Return a table's properties with the decoded columns of a digest, if it keeps them; otherwise unchanged."""
    found = next((each for each in _kept(properties, stream) if each.digest == digest), None)
    own = {} if found is None else decoded_properties({}, stream, found, None)
    return {**properties, **own}


def _kept(properties: Mapping[str, str], stream: str) -> tuple[DecodedColumns, ...]:
    """Return the columns, then former ones; none if the table keeps none."""
    name = decoded_property(stream)
    try:
        text = whole_property(properties, name)
        return () if text is None else _read(text)
    except (ValueError, ValidationError, msgspec.MsgspecError) as problem:
        raise FrazilError(
            f"the table property {name}, which keeps the columns that stream {stream} decodes, cannot be read: "
            f"{problem}.",
            fix="set it again as an older version of the table's metadata has it",
        ) from None


@lru_cache(maxsize=64)
def _read(text: str) -> tuple[DecodedColumns, ...]:
    kept = decode_json(text, _Kept)
    return tuple(map(_unpacked, (kept.columns, *kept.former)))
