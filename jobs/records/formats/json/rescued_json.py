"""Rescued data of JSON records: members that no column takes, kept as JSON text in a column of their own.

A field without a column goes to `_extra`, in the shape of its record: a member within `payer` is `{"payer":{"x":1}}`,
one in the second element of `items` is `{"items":[null,{"x":1}]}`. A value that its column does not take goes to
`NAME_text` beside the column, which is null then; for a value within a list or a map, the whole list or map goes there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyiceberg.types import StringType

from jobs.records.formats.interface.decoder import (
    Decoded,
    Failure,
    ValueDecoder,
    refused_change,
    without_rows,
)
from jobs.records.formats.interface.problems import (
    BAD_BINARY,
    BAD_DATE,
    BAD_TIMESTAMP,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_TYPE,
)
from jobs.records.formats.json.column_changes import (
    ColumnAt,
    ColumnChanges,
    column_at,
    needs_of_rows,
)
from jobs.records.formats.json.unknown_fields import Rename, as_sent
from jobs.records.formats.json_texts import canonical
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.needs import Need, Path
from jobs.records.schema.rescued_data import (
    EXTRA_COLUMN,
    EXTRA_NEED,
    EXTRA_PLACE,
    text_column,
)

CLASHES = frozenset({WRONG_TYPE, OUT_OF_RANGE, PRECISION_LOSS, BAD_TIMESTAMP, BAD_DATE, BAD_BINARY})
"""Error classes of a bad value in an otherwise good record."""

_MOST_TEXTS = 9
_NULL = msgspec.Raw(b"null")
_EXTRA_FIELD = pa.field(EXTRA_COLUMN, pa.string(), nullable=True)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode


class RescuingJsonDecoder:
    """Decode JSON objects as another decoder does, and keep the members that no column takes.

    Args:
        inner: The decoder, which ignores such members and counts them.
        declared: The columns, without `_extra`.
        column: Whether the table has `_extra`; if not, the records that need it report that.
        refused: Why the table does not get `_extra`, so that the records that need it fail; None if it may.
        rename: Returns a record with the names of columns.
    """

    def __init__(
        self,
        inner: ValueDecoder,
        declared: StructType,
        *,
        column: bool,
        refused: str | None = None,
        rename: Rename = as_sent,
    ) -> None:
        self._rename: Rename = rename
        self._inner: ValueDecoder = inner
        self._declared: StructType = declared
        self._column: bool = column
        self._refused: str | None = refused

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decodes a block; a bad record becomes a failure, it never raises.

        Args:
            values: One value per record; null is a tombstone.
        """
        decoded = self._inner.decode(values)
        if not self._column:
            if not decoded.unknown_fields:
                return decoded
            if self._refused is not None:
                return self._without_column(decoded, self._rescued(values, decoded), self._refused)
            return replace(decoded, needs=(*decoded.needs, EXTRA_NEED.at(int(decoded.positions[0]))))
        rescued: pa.Array = pa.nulls(decoded.rows.num_rows, pa.string())
        if decoded.unknown_fields:
            rescued = pa.array(self._rescued(values, decoded), pa.string())
        columns, schema = [*decoded.rows.columns, rescued], decoded.rows.schema.append(_EXTRA_FIELD)
        return replace(decoded, rows=pa.RecordBatch.from_arrays(columns, schema=schema), unknown_fields={})

    def _rescued(self, values: pa.BinaryArray, decoded: Decoded) -> list[str | None]:
        good = values.take(pa.array(decoded.positions)).to_numpy(zero_copy_only=False).tolist()
        return [members_without_column(self._declared, self._rename(value)) for value in good]

    def _without_column(self, decoded: Decoded, rescued: list[str | None], why: str) -> Decoded:
        """Return the block without the records that have data to keep."""
        failures = {
            row: refused_change(row, why, EXTRA_PLACE)
            for row, members in zip(decoded.positions.tolist(), rescued, strict=True)
            if members is not None
        }
        return replace(without_rows(decoded, failures, ()), unknown_fields={})


def members_without_column(declared: StructType, record: bytes) -> str | None:
    """Return the members of a record that no column takes, as a canonical JSON object; None without any.

    Args:
        declared: The columns.
        record: A JSON object that a decoder has taken.
    """
    found = _without_column(declared, record.strip())
    return found.decode() if found is not None else None


def _without_column(declared: DeclaredType, token: Any) -> bytes | None:
    initial = bytes(memoryview(token)[:1])
    match declared:
        case StructType(fields) if initial == b"{":
            types = {each.name: each.type for each in fields}
            members = {
                name: canonical(bytes(value)) if name not in types else _without_column(types[name], value)
                for name, value in _object(token).items()
            }
            return _joined(members)
        case ListType(element) if initial == b"[":
            parts = [_without_column(element, value) for value in _array(token)]
            if all(part is None for part in parts):
                return None
            return b"[" + b",".join(part or b"null" for part in parts) + b"]"
        case MapType(_, inner) if initial == b"{":
            return _joined({name: _without_column(inner, value) for name, value in _object(token).items()})
        case _:
            return None


def _joined(members: Mapping[str, bytes | None]) -> bytes | None:
    kept = sorted((name, value) for name, value in members.items() if value is not None)
    if not kept:
        return None
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in kept) + b"}"


def rescued_values(
    declared: StructType, changes: ColumnChanges, failure: Failure, record: bytes, may_add: Callable[[Path], bool]
) -> Decoded | list[Need] | None:
    """Rescue a record that changes of existing columns alone do not let land.

    A value that a change would let into its column does not become text: its record waits until the change is made or
    refused.

    Args:
        declared: The columns.
        changes: Finds such changes.
        failure: Failure of the record.
        record: The record, with the names of columns.
        may_add: Tells whether a column may be added.

    Returns:
        Its row, if all text columns exist; the changes of columns that it waits for, or else the text columns that the
        table lacks; None if it fails with any change.
    """
    columns, wide, lacking, texts = declared, False, list[Need](), 0
    while texts < _MOST_TEXTS:
        if not wide and changes.may_help(failure):
            wide = True
        else:
            column = column_at(columns, failure.field) if failure.error_class in CLASHES else None
            beside = _text_beside(columns, column) if column else None
            rewritten = _with_text(record, beside.place) if beside else None
            if beside is None or rewritten is None or not (beside.exists or may_add(beside.path)):
                return None
            record, texts = rewritten, texts + 1
            if not beside.exists:
                lacking.append(Need("add", beside.path, StringType()))
                columns = _with_column(columns, beside.path)
        decoded = changes.decode(changes.widest(columns) if wide else columns, [record])
        if len(decoded.positions):
            if wide and (needs := needs_of_rows(declared, decoded.rows).get(0)):
                return needs
            if wide and not lacking:
                decoded = changes.decode(columns, [record])
            return lacking or (decoded if len(decoded.positions) else None)
        failure = decoded.failures[0]
    return None


class _TextBeside(NamedTuple):
    """The column that takes a clashing value as text.

    Attributes:
        place: Names of the members in the record, from its top to the value.
        path: Path of the column.
        exists: Whether the table has the column.
    """

    place: tuple[str, ...]
    path: Path
    exists: bool


def _text_beside(declared: StructType, column: ColumnAt) -> _TextBeside | None:
    """Return the text column beside one whose value clashes; None if there can be none."""
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
    fields, path = {each.name: each for each in struct.fields}, text_column(tuple(place))
    beside = fields.get(path[-1])
    if fields[place[-1]].required or (beside is not None and beside.type != Primitive("string")):
        return None
    return _TextBeside(tuple(place), path, beside is not None)


def _with_column(columns: StructType, path: Path) -> StructType:
    """Return the columns with another one, of texts."""
    name, *rest = path
    if not rest:
        return StructType((*columns.fields, Field(name, Primitive("string"))))
    return StructType(
        tuple(
            replace(each, type=_with_column(each.type, tuple(rest)))
            if each.name == name and isinstance(each.type, StructType)
            else each
            for each in columns.fields
        )
    )


def _with_text(record: Any, place: tuple[str, ...]) -> bytes | None:
    """Return the record with a value as text beside it; None if that member exists already."""
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        members = _object(record)
        name, *rest = place
        (beside,) = text_column((name,))
        if rest and name in members:
            inner = _with_text(members[name], tuple(rest))
            return None if inner is None else msgspec.json.encode(members | {name: msgspec.Raw(inner)})
        if name in members and beside not in members:
            return msgspec.json.encode(members | {name: _NULL, beside: bytes(members[name]).strip().decode()})
    return None
