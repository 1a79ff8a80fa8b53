"""Common parts of change records: their base, values of keys, former keys, and values that were not sent."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder_spec import DecoderSpec, TableSchema
from jobs.records.formats.interface.problems import BAD_ENVELOPE
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.arrow_schema import rows_arrow_type
from jobs.records.schema.iceberg_schema import fresh_schema
from jobs.records.transforms.change_events.changelog import KEY
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.masks import Mask, mask_of
from jobs.records.transforms.set_columns import last_header
from jobs.records.transforms.transform import (
    Chain,
    RowFailure,
    Rows,
    Transform,
)


def own_fields(columns: Columns, besides: Collection[str]) -> tuple[ice.NestedField, ...]:
    """Return the source's columns of rows: neither the key nor others that a record has beside its value."""
    return tuple(each for each in columns if each.name != KEY and each.name not in besides)


def with_key_values(
    names: Sequence[str], arrays: Sequence[pa.Array], keys: pa.Array | None, among: Mask
) -> list[pa.Array]:
    """Return the columns of rows, with nulls in the key's columns replaced by the key's values.

    Args:
        names: Names of the columns.
        arrays: Columns of equal length.
        keys: Structs; None if there are none.
        among: Mask of the rows that may lack the values of their key.
    """
    if keys is None or not among.any():
        return list(arrays)
    mask = pa.array(among)
    found: list[pa.Array] = []
    for name, array in zip(names, arrays, strict=True):
        at = keys.type.get_field_index(name)
        value = as_kind(pc.struct_field(keys, [at]), array.type) if at >= 0 and array.null_count else None
        found.append(array if value is None else pc.if_else(pc.and_(mask, array.is_null()), value, array))
    return found


def as_kind(array: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return the values in a type that holds all of them; None if it may not."""
    if array.type.equals(kind):
        return array
    if pa.types.is_integer(array.type) and pa.types.is_integer(kind) and array.type.bit_width < kind.bit_width:
        return array.cast(kind)
    return None


_NAMES = pa.list_(pa.field("element", pa.string()))


def without_placeholders(
    names: Sequence[str], arrays: Sequence[pa.Array], placeholder: str, among: Mask
) -> tuple[list[pa.Array], pa.Array | None]:
    """Return the columns of rows with null in place of placeholders.

    PostgreSQL leaves large values (TOAST) out of the log if an update did not change them; so does Oracle with some
    objects. Debezium then sends a placeholder, in a form for each type: the text; its bytes; an array with it as the
    only element; an array of the bytes' numbers; a map from it to itself.

    Args:
        names: Names of the columns.
        arrays: Columns of equal length.
        placeholder: The text that stands for a value that was not sent.
        among: Mask of the rows that may have one.

    Returns:
        The columns, and for each row the names of those that had one, null without any; None if no row had one.
    """
    columns, at, which = list(arrays), list[np.ndarray](), list[np.ndarray]()
    if not among.any():
        return columns, None
    for number, array in enumerate(arrays):
        found = _placeholders(array, placeholder)
        if found is None or not (mask := mask_of(found) & among).any():
            continue
        columns[number] = pc.if_else(pa.array(mask), pa.scalar(None, array.type), array)
        rows = np.flatnonzero(mask)
        at.append(rows)
        which.append(np.full(len(rows), number, np.int64))
    if not at:
        return columns, None
    rows, numbers = np.concatenate(at), np.concatenate(which)
    order = np.argsort(rows, kind="stable")
    counts = np.bincount(rows, minlength=len(among))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values = pa.array(list(names), pa.string()).take(pa.array(numbers[order]))
    lists = pa.ListArray.from_arrays(pa.array(offsets), values, type=_NAMES, mask=pa.array(counts == 0))
    return columns, lists


def _placeholders(array: pa.Array, placeholder: str) -> pa.Array | None:
    """Return a mask of the placeholders; None for a type that cannot hold one."""
    kind = array.type
    if pa.types.is_string(kind):
        return pc.is_in(array, value_set=_texts(placeholder))
    if pa.types.is_binary(kind):
        return pc.equal(array, pa.scalar(placeholder.encode(), kind))
    if pa.types.is_map(kind):
        return _lists_of(array, array.keys, _placeholders(array.keys, placeholder), 1)
    if not pa.types.is_list(kind):
        return None
    element = kind.value_type
    if pa.types.is_integer(element) or pa.types.is_date32(element):
        return _byte_lists(array, placeholder.encode())
    return _lists_of(array, array.values, _elements(array.values, placeholder), 1)


def _elements(values: pa.Array, placeholder: str) -> pa.Array | None:
    if values.type == pa.binary(16):
        return pc.equal(values, pa.scalar(_uuid(placeholder).bytes, values.type))
    if pa.types.is_string(values.type):
        return pc.is_in(values, value_set=pa.array([placeholder, str(_uuid(placeholder))]))
    return _placeholders(values, placeholder) if pa.types.is_binary(values.type) else None


def _lists_of(array: pa.Array, values: pa.Array, found: pa.Array | None, length: int) -> pa.Array | None:
    """Return a mask of the lists of a length whose first element is found."""
    if found is None:
        return None
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    right = np.diff(offsets) == length
    result = np.zeros(len(array), bool)
    if right.any():
        result[right] = mask_of(found)[offsets[:-1][right]]
    return pa.array(result & mask_of(array.is_valid()))


def _byte_lists(array: pa.Array, wanted: bytes) -> pa.Array:
    """Return a mask of the lists of numbers that are the given bytes."""
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    right = np.diff(offsets) == len(wanted)
    result = np.zeros(len(array), bool)
    if right.any():
        values = array.values
        whole = values.view(pa.int32()) if pa.types.is_date32(values.type) else values
        numbers = pc.fill_null(whole, -1).to_numpy(zero_copy_only=False)
        signed = np.frombuffer(wanted, np.int8)
        rows = np.flatnonzero(right)
        result[rows] = (numbers[offsets[:-1][rows][:, None] + np.arange(len(wanted))] == signed).all(axis=1)
    return pa.array(result & mask_of(array.is_valid()))


@lru_cache(maxsize=8)
def _texts(placeholder: str) -> pa.Array:
    """Return the placeholder in the texts that columns may hold: itself, as JSON, and as text of its bytes."""
    raw = placeholder.encode()
    quoted = json.dumps(placeholder)
    encoded = (base64.b64encode(raw), base64.urlsafe_b64encode(raw))
    texts = {
        placeholder,
        quoted,
        f"[{quoted}]",
        f"{{{quoted}:{quoted}}}",
        raw.hex(),
        *(each.decode() for each in encoded),
    }
    return pa.array(sorted(texts), pa.string())


@lru_cache(maxsize=8)
def _uuid(placeholder: str) -> uuid.UUID:
    """Return the UUID that Java derives from the placeholder's bytes."""
    digest = hashlib.md5(placeholder.encode(), usedforsecurity=False).digest()
    return uuid.UUID(bytes=digest, version=3)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges(Transform):
    """Convert records to rows of a changelog.

    Attributes:
        unavailable: The text that stands for a value which the source did not send.
        key: Name in the row for a key that is a single value.
        beside: Columns that records have beside the event or the row: headers, and data that no column takes.
        keys: Decoder of keys, for those that headers hold.
    """

    name: ClassVar[str] = "changes"
    unavailable: str = "__debezium_unavailable_value"
    key: str | None = None
    beside: tuple[str, ...] = ()
    keys: DecoderSpec | None = None

    @property
    def asks(self) -> frozenset[str]:
        """Return the headers, one of which may hold the former key of a row."""
        return frozenset({"headers"})


def with_key_decoder(chain: Chain, keys: DecoderSpec) -> Chain:
    """Return the steps with a decoder of keys, if one of them reads keys from headers.

    Args:
        chain: The steps.
        keys: The keys' decoder, with the lookup of their writer schemas.
    """
    steps = [
        replace(each, keys=keys) if isinstance(each, RowChanges) and each.key is None else each for each in chain.steps
    ]
    return replace(chain, steps=tuple(steps))


HEADER = "__debezium.oldkey"
_WITH_SCHEMA = rb'^\s*\{\s*"(schema|payload)"\s*:'


def old_keys(rows: Rows, key: ice.StructType, keys: DecoderSpec | None) -> tuple[pa.Array | None, list[RowFailure]]:
    """Return the old keys of records, as structs; None if no record has one.

    Debezium writes an update of a primary key as a deletion under the old key and a creation under the new one, whose
    header `__debezium.oldkey` is the old key: as JSON, as JSON with its schema, or as keys are written.

    Args:
        rows: Rows with the headers.
        key: The type of keys.
        keys: The keys' decoder; None for keys that are single values.
    """
    raw = last_header(rows.frame, HEADER)
    at = np.flatnonzero(mask_of(raw.is_valid()))
    if not len(at):
        return None, []
    values = raw.take(pa.array(at))
    json = mask_of(pc.match_substring_regex(values, r"^\s*\{"))
    wrapped = mask_of(pc.match_substring_regex(values, _WITH_SCHEMA.decode()))
    kind = rows_arrow_type(key)
    parts, order, failures = list[pa.Array](), list[np.ndarray](), list[RowFailure]()
    for which, decoder in (
        (wrapped, _written_as(key, "connect_json")),
        (json & ~wrapped, _written_as(key, "json")),
        (~json & ~wrapped, keys),
    ):
        mine = np.flatnonzero(which)
        if not len(mine):
            continue
        if decoder is None:
            failures += [_unread(int(row), "another form") for row in at[mine]]
            continue
        decoded = FORMATS[decoder.kind].reference(decoder).decode(values.take(pa.array(mine)))
        failures += [_unread(int(at[mine[each.row]]), each.message) for each in decoded.failures]
        arrays = [
            each if each.type.equals(field.type) else each.cast(field.type)
            for each, field in zip(decoded.rows.columns, kind, strict=True)
        ]
        parts.append(pa.StructArray.from_arrays(arrays, fields=list(kind)))
        order.append(at[mine[decoded.positions]])
    if not parts:
        return None, failures
    indices = np.full(rows.count, -1, np.int64)
    indices[np.concatenate(order)] = np.arange(sum(map(len, parts)))
    return pa.concat_arrays(parts).take(pa.array(indices, mask=indices < 0)), failures


def _written_as(key: ice.StructType, kind: str) -> DecoderSpec:
    rows: Schema = fresh_schema(key.fields)
    return DecoderSpec(kind, TableSchema(rows.model_dump_json()), {"unknown_fields": "ignore"})


def _unread(row: int, said: str) -> RowFailure:
    message = f"needs a key in the header {HEADER}, as JSON or as keys are written, found none: {said}"
    return RowFailure(row, BAD_ENVELOPE, message, "$._change_old_key")
