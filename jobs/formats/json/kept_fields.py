"""Kept fields: members of JSON records that no column takes, as canonical JSON in one column beside the others.

What is kept has the shape of the record: a member within `payer` is `{"payer":{"x":1}}`, one in the second element of
`items` is `{"items":[null,{"x":1}]}`. Numbers stay as they were sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg.types import StringType

from jobs.formats.decoder import DECODE_VALUE, Decoded, Failure, ValueDecoder
from jobs.formats.json.canonical import canonical
from jobs.formats.json.decoded_rows import without_rows
from jobs.formats.json.renaming import Rename, as_sent
from jobs.formats.problems import SCHEMA_CHANGE_REFUSED, change_refused
from jobs.schema.declared import DeclaredType, ListType, MapType, StructType
from jobs.schema.kept_fields import EXTRA_COLUMN
from jobs.schema.needs import Need

_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_FIELD = pa.field(EXTRA_COLUMN, pa.string(), nullable=True)


class KeepingJsonDecoder:
    """Decodes JSON objects as another decoder does, and keeps the members that no column takes.

    Args:
        inner: The decoder, which ignores such members and counts them.
        declared: The columns, without the one that keeps them.
        column: Whether the table has that one; if not, the records that need it say so.
        refused: Why the table does not get it: the records that need it fail.
        rename: Gives a record with the names of columns.
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
                return self._without_column(decoded, self._kept_of(values, decoded), self._refused)
            need = Need("add", (EXTRA_COLUMN,), StringType(), int(decoded.positions[0]))
            return replace(decoded, needs=(*decoded.needs, need))
        kept: pa.Array = pa.nulls(decoded.rows.num_rows, pa.string())
        if decoded.unknown_fields:
            kept = pa.array(self._kept_of(values, decoded), pa.string())
        columns, schema = [*decoded.rows.columns, kept], decoded.rows.schema.append(_FIELD)
        return replace(decoded, rows=pa.RecordBatch.from_arrays(columns, schema=schema), unknown_fields={})

    def _kept_of(self, values: pa.BinaryArray, decoded: Decoded) -> list[str | None]:
        good = values.take(pa.array(decoded.positions)).to_numpy(zero_copy_only=False).tolist()
        return [kept_members(self._declared, self._rename(value)) for value in good]

    def _without_column(self, decoded: Decoded, kept: list[str | None], why: str) -> Decoded:
        """The block without the records of which something would have to be kept."""
        failures = {
            row: Failure(row, DECODE_VALUE, SCHEMA_CHANGE_REFUSED, change_refused(why), f"$.{EXTRA_COLUMN}")
            for row, members in zip(decoded.positions.tolist(), kept, strict=True)
            if members is not None
        }
        return replace(without_rows(decoded, failures, ()), unknown_fields={})


def kept_members(declared: StructType, record: bytes) -> str | None:
    """The members of a record that no column takes, as a canonical JSON object; None without any.

    Args:
        declared: The columns.
        record: A JSON object that a decoder has taken.
    """
    found = _kept(declared, record.strip())
    return found.decode() if found is not None else None


def _kept(declared: DeclaredType, token: Any) -> bytes | None:
    initial = bytes(memoryview(token)[:1])
    match declared:
        case StructType(fields) if initial == b"{":
            types = {each.name: each.type for each in fields}
            members = {
                name: canonical(bytes(value)) if name not in types else _kept(types[name], value)
                for name, value in _object(token).items()
            }
            return _joined(members)
        case ListType(element) if initial == b"[":
            parts = [_kept(element, value) for value in _array(token)]
            if all(part is None for part in parts):
                return None
            return b"[" + b",".join(part or b"null" for part in parts) + b"]"
        case MapType(_, inner) if initial == b"{":
            return _joined({name: _kept(inner, value) for name, value in _object(token).items()})
        case _:
            return None


def _joined(members: Mapping[str, bytes | None]) -> bytes | None:
    kept = sorted((name, value) for name, value in members.items() if value is not None)
    if not kept:
        return None
    return b"{" + b",".join(msgspec.json.encode(name) + b":" + value for name, value in kept) + b"}"
