"""Columns of a block: conversion of the arrays that DataFusion read to the Arrow types of rows.

Each conversion also returns the indices of invalid values, which are mapped to their rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.formats.avro.container import members
from jobs.records.formats.avro.nodes import (
    Array,
    Enum,
    Fixed,
    Json,
    Logical,
    Map,
    Node,
    Null,
    Plain,
    Record,
    Union,
    Within,
)
from jobs.records.formats.avro.schema import is_null
from jobs.records.formats.avro.values import DAY, MICROS
from jobs.records.formats.columns.text_columns import iso_timestamps
from jobs.records.formats.columns.text_values import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
)
from jobs.records.formats.columns.unscaled import exact_scaled
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.schema.declared import Primitive

Indices = npt.NDArray[np.int64]

NONE: Indices = np.zeros(0, np.int64)


class Column(NamedTuple):
    """Converted values.

    Attributes:
        array: Values in the type of the rows; undefined at refused indices.
        refused: Indices of values for the reference decoder, ascending.
    """

    array: pa.Array
    refused: Indices = NONE


def convert(node: Node, array: pa.Array, kind: pa.DataType) -> Column:
    """Convert the values of a node to the type of rows.

    Args:
        node: The schema.
        array: Array read with the schema of `reading_schema`.
        kind: Arrow type of rows.
    """
    match node:
        case Plain("boolean"):
            return _booleans(array)
        case Plain(_, logical) | Fixed(_, _, logical):
            return Column(array) if logical is None else Column(*convert_logical(logical, array, kind))
        case Enum(_, symbols):
            return Column(pa.array(symbols, pa.string()).take(array.indices))
        case Array(items):
            return _list(items, array, kind)
        case Map(values):
            return _map(values, array, kind)
        case Union(branches, only):
            if only is None:
                return _union(node, array, kind)
            if len(branches) == 1:
                return convert(only, array.field(0), kind)
            return _optional(only, 0 if isinstance(branches[1].node, Null) else 1, array, kind)
        case Record(scaled=scaled):
            return _record(node, array, kind) if scaled is None else Column(*convert_scaled(array, scaled, kind))
        case Null() | Within() | Json():
            raise AssertionError("no block has it")


def struct_columns(node: Record, arrays: Sequence[pa.Array], kinds: Sequence[pa.DataType]) -> list[Column]:
    """Convert the columns of a record's fields.

    Args:
        node: The record.
        arrays: Arrays of its fields that take bytes.
        kinds: Arrow types of its fields that have a column.
    """
    read = zip(members(node), arrays, strict=True)
    filled = [(each, array) for each, array in read if not is_null(each)]
    return [convert(each, array, kind) for (each, array), kind in zip(filled, kinds, strict=True)]


def together(columns: Sequence[Column]) -> Indices:
    """Return the indices that at least one of some columns of equal length refuses."""
    refused = [each.refused for each in columns if len(each.refused)]
    return np.unique(np.concatenate(refused)) if refused else NONE


def _booleans(array: pa.FixedSizeBinaryArray) -> Column:
    data = np.frombuffer(array.buffers()[1], np.uint8)[array.offset : array.offset + len(array)]
    refused = NONE
    if len(data) and data.max() > 1:
        refused = np.flatnonzero((data > 1) & np.asarray(array.is_valid()))
    mask = np.asarray(array.is_null()) if array.null_count else None
    return Column(pa.array(data == 1, mask=mask), refused)


def _record(node: Record, array: pa.StructArray, kind: pa.DataType) -> Column:
    fields = [kind.field(n) for n in range(kind.num_fields)]
    arrays = [array.field(n) for n in range(array.type.num_fields)]
    columns = struct_columns(node, arrays, [each.type for each in fields])
    mask = array.is_null() if array.null_count else None
    made = pa.StructArray.from_arrays([each.array for each in columns], fields=fields, mask=mask)
    refused = together(columns)
    if len(refused) and mask is not None:
        refused = refused[~np.asarray(mask)[refused]]
    return Column(made, refused)


def _list(items: Node, array: pa.ListArray, kind: pa.DataType) -> Column:
    column = convert(items, array.values, kind.value_type)
    made = pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[column.array]
    )
    return Column(made, _parents(array, column.refused))


def _map(values: Node, array: pa.MapArray, kind: pa.DataType) -> Column:
    column = convert(values, array.items, kind.item_type)
    fields = [kind.key_field, kind.item_field]
    entries = pa.StructArray.from_arrays([array.keys, column.array], fields=fields)
    made = pa.Array.from_buffers(
        kind, len(array), array.buffers()[:2], array.null_count, array.offset, children=[entries]
    )
    refused = np.concatenate([_parents(array, column.refused), _double_keys(array)])
    return Column(made, np.unique(refused) if len(refused) else NONE)


def _parents(array: pa.ListArray | pa.MapArray, children: Indices) -> Indices:
    """Return the indices of the lists that contain the values with these indices."""
    if not len(children):
        return NONE
    ends = array.offsets.to_numpy()
    return np.unique(np.searchsorted(ends, children, side="right") - 1)


def _double_keys(array: pa.MapArray) -> Indices:
    """Return the indices of maps with a duplicate key."""
    offsets = array.offsets.to_numpy()
    sizes = np.diff(offsets)
    if not len(sizes) or sizes.max() < 2:
        return NONE
    keys = array.keys.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).dictionary_encode()
    parents = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.sort(parents * len(keys.dictionary) + keys.indices.to_numpy())
    return np.unique(pairs[1:][pairs[1:] == pairs[:-1]] // len(keys.dictionary))


def _optional(only: Node, number: int, array: pa.UnionArray, kind: pa.DataType) -> Column:
    """Convert a union of null, one other type and a spare type that no value has.

    Args:
        only: The other type.
        number: Number of the other type in the union.
        array: The union.
        kind: Arrow type of rows.
    """
    column = convert(only, array.field(number), kind)
    if len(array.field(number)) == len(array):
        return column
    codes, offsets = array.type_codes.to_numpy(), array.offsets.to_numpy()
    null = codes != number
    made = column.array.take(pa.array(offsets, mask=null))
    refused = codes == 2
    if len(column.refused):
        rows = np.flatnonzero(~null)
        refused[rows[np.isin(offsets[rows], column.refused)]] = True
    return Column(made, np.flatnonzero(refused))


def _union(node: Union, array: pa.UnionArray, kind: pa.DataType) -> Column:
    """Convert a union to a struct with the value in the field of its type, and null in the others."""
    codes, offsets = array.type_codes.to_numpy(), array.offsets.to_numpy()
    fields = [kind.field(n) for n in range(kind.num_fields)]
    numbers = [n for n, each in enumerate(node.branches) if not isinstance(each.node, Null)]
    arrays: list[pa.Array] = []
    refused: list[Indices] = []
    for number, field in zip(numbers, fields, strict=True):
        column = convert(node.branches[number].node, array.field(number), field.type)
        others = codes != number
        arrays.append(column.array.take(pa.array(offsets, mask=others)))
        if len(column.refused):
            rows = np.flatnonzero(~others)
            refused.append(rows[np.isin(offsets[rows], column.refused)])
    mask = None
    if node.nullable:
        null = next(n for n, each in enumerate(node.branches) if isinstance(each.node, Null))
        mask = pa.array(codes == null)
    made = pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)
    return Column(made, np.sort(np.concatenate(refused)) if refused else NONE)


def drop(columns: Sequence[pa.Array], refused: Indices, schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows that are not refused."""
    if not len(refused):
        return pa.RecordBatch.from_arrays(list(columns), schema=schema)
    relaxed = pa.schema([each.with_nullable(True) for each in schema])
    good = np.ones(len(columns[0]), np.bool_)
    good[refused] = False
    kept = pa.RecordBatch.from_arrays(list(columns), schema=relaxed).filter(pa.array(good))
    return pa.RecordBatch.from_arrays(kept.columns, schema=schema)


Bytes = npt.NDArray[np.uint8]

_WIDTH = 16
"""Number of bytes of a decimal in Arrow, and of a UUID."""
_HALF = 8
_HYPHENS = np.array([8, 13, 18, 23])
_DIGITS = np.setdiff1d(np.arange(36), _HYPHENS)
_NO_DIGIT = 255
_DIGIT = np.full(256, _NO_DIGIT, np.uint8)
for _value, _pair in enumerate(zip(b"0123456789abcdef", b"0123456789ABCDEF", strict=True)):
    _DIGIT[list(_pair)] = _value


def convert_logical(logical: Logical, array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Indices]:
    """Convert values of a logical type; return them with the indices of values for the reference decoder.

    Args:
        logical: The logical type.
        array: Numbers, bytes or texts that carry the values.
        kind: Arrow type of the result.
    """
    match logical.type:
        case ice.DecimalType():
            return _decimals(array, kind)
        case ice.DateType():
            return array.cast(kind), _outside(array, FIRST_DAY, LAST_DAY)
        case ice.UUIDType():
            return _uuids(array) if logical.unit == "uuid" else (array, NONE)
        case ice.TimeType():
            return _instants(array, logical.unit, 0, DAY - 1, kind)
        case ice.TimestamptzType() if logical.unit == "iso":
            found, bad = iso_timestamps(Primitive("timestamptz"), array, zoned=True)
            return found, np.array([each.index for each in bad], np.int64)
        case _:
            return _instants(array, logical.unit, FIRST_MICROSECOND, LAST_MICROSECOND, kind)


def convert_scaled(array: pa.StructArray, scaled: ice.PrimitiveType, kind: pa.DataType) -> tuple[pa.Array, Indices]:
    """Convert values of Debezium's VariableScaleDecimal, one by one."""
    found, refused = [], []
    scale, value = (array.type.field(n).name for n in range(2))
    for index, each in enumerate(array.to_pylist()):
        try:
            found.append(None if each is None else exact_scaled(each[scale], each[value], scaled))
        except ValueProblem:
            found.append(None)
            refused.append(index)
    return pa.array(found, kind), np.array(refused, np.int64)


def _instants(array: pa.Array, unit: str, first: int, last: int, kind: pa.DataType) -> tuple[pa.Array, Indices]:
    numbers = array.cast(pa.int64())
    if unit == "ns":
        micros = pc.divide(numbers, 1_000)
        inexact = _where(pc.not_equal(pc.multiply(micros, 1_000), numbers))
        refused = np.union1d(inexact, _outside(micros, first, last))
        return micros.cast(kind), refused
    times = MICROS[unit]
    low, high = -(-first // times), last // times
    refused = _outside(numbers, low, high)
    # The product of refused values may overflow; it is not used.
    return pc.multiply(numbers, times).cast(kind), refused


def _outside(numbers: pa.Array, first: int, last: int) -> Indices:
    extremes = pc.min_max(numbers)
    least = extremes["min"].as_py()
    if least is None or (least >= first and extremes["max"].as_py() <= last):
        return NONE
    return _where(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))


def _where(found: pa.BooleanArray) -> Indices:
    return np.flatnonzero(pc.fill_null(found, False).to_numpy(zero_copy_only=False))


def _decimals(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Indices]:
    starts, ends, data = _extents(array)
    lengths = ends - starts
    bad = (lengths == 0) | (lengths > _WIDTH)
    if len(lengths) and not bad.any() and lengths.max() <= _HALF <= len(data):
        halves = _short_numbers(starts, lengths, data)
    else:
        halves = _numbers(starts, ends, data, bad)
    low, high = halves[:, 0], halves[:, 1].view(np.int64)
    beyond = _at_least(low, high, 10**kind.precision) | ~_at_least(low, high, 1 - 10**kind.precision)
    refused = bad | beyond
    if array.null_count:
        refused &= np.asarray(array.is_valid())
    buffers = [_validity(array), pa.py_buffer(halves)]
    return pa.Array.from_buffers(kind, len(array), buffers, array.null_count), np.flatnonzero(refused)


def _short_numbers(starts: Indices, lengths: Indices, data: Bytes) -> npt.NDArray[np.uint64]:
    """Return numbers of one to eight bytes as two halves; each is read as one word with the bytes that follow it."""
    words = np.ndarray(len(data) - _HALF + 1, ">i8", data, strides=(1,))
    # The last numbers are read with the bytes before them.
    at = np.minimum(starts, len(data) - _HALF)
    numbers = (words[at].astype(np.int64) << 8 * (starts - at)) >> (64 - 8 * lengths)
    return np.stack([numbers, numbers >> 63], axis=1).view(np.uint64)


def _numbers(starts: Indices, ends: Indices, data: Bytes, bad: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint64]:
    """Read numbers of up to sixteen bytes each, as two halves; bad ones are undefined."""
    lengths = np.where(bad, 0, ends - starts)
    longest = int(lengths.max(initial=0))
    halves = np.zeros((len(lengths), 2), np.uint64)
    if longest:
        last = len(data) - 1
        # Missing bytes are filled with the sign.
        fill = np.where((data[np.minimum(starts, last)] & 0x80 > 0) & ~bad, np.uint64(0xFF), np.uint64(0))
        uniform = int(lengths.min()) == longest
        for half in range(2):
            for place in range(8 * half, 8 * half + 8):
                if place < longest:
                    byte = data[np.clip(ends - 1 - place, 0, last)].astype(np.uint64)
                    byte = byte if uniform else np.where(place < lengths, byte, fill)
                else:
                    byte = fill
                halves[:, half] |= byte << np.uint64(8 * (place % 8))
    return halves


def _validity(array: pa.Array) -> pa.Buffer | None:
    return pa.array(np.asarray(array.is_valid())).buffers()[1] if array.null_count else None


def _at_least(low: npt.NDArray[np.uint64], high: npt.NDArray[np.int64], bound: int) -> npt.NDArray[np.bool_]:
    """Mask of the 128-bit numbers that are not less than a bound."""
    bound_high, bound_low = np.int64(bound >> 64), np.uint64(bound & (2**64 - 1))
    return (high > bound_high) | ((high == bound_high) & (low >= bound_low))


def _uuids(array: pa.StringArray) -> tuple[pa.Array, Indices]:
    starts, ends, data = _extents(array)
    valid = np.asarray(array.is_valid())
    fit = valid & (ends - starts == 36)
    found = np.zeros((len(array), _WIDTH), np.uint8)
    rows = np.flatnonzero(fit)
    if len(rows):
        texts = data[starts[rows][:, None] + np.arange(36)]
        digits = _DIGIT[texts[:, _DIGITS]]
        good = (digits < _NO_DIGIT).all(axis=1) & (texts[:, _HYPHENS] == ord("-")).all(axis=1)
        fit[rows] = good
        found[rows] = digits[:, 0::2] << 4 | digits[:, 1::2] & 0x0F
    buffers = [_validity(array), pa.py_buffer(found)]
    made = pa.Array.from_buffers(pa.binary(_WIDTH), len(array), buffers, array.null_count)
    return made, np.flatnonzero(valid & ~fit)


def _extents(array: pa.Array) -> tuple[Indices, Indices, Bytes]:
    """Return begin and end of each value in a column of bytes, and the bytes."""
    buffers = array.buffers()
    data = np.frombuffer(buffers[-1] or b"", np.uint8)
    if pa.types.is_fixed_size_binary(array.type):
        width = array.type.byte_width
        starts = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        return starts, starts + width, data
    offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    return offsets[:-1], offsets[1:], data
