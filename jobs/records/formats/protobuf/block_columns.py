"""Block columns: the fields of a block of wire messages, converted to the message's columns.

A value that is refused, or that only the reference can read, makes its record doubtful; the value in its place does not
matter, as doubtful records are decoded by the reference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError

from jobs.records.formats.columns.text_values import FIRST_MICROSECOND, LAST_MICROSECOND
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.formats.protobuf.message_tree import (
    DEFAULTS,
    INTEGERS,
    Enum,
    Field,
    Json,
    Logical,
    Marker,
    Message,
    Scalar,
    Type,
    Wrapper,
)
from jobs.records.formats.protobuf.values import json_text
from jobs.records.formats.protobuf.wire_walk import name_of

Mask: TypeAlias = npt.NDArray[np.bool_]
Column: TypeAlias = tuple[pa.Array, Mask | None]
"""Values, with a mask of the doubtful ones; None if none is."""

_INT32 = Scalar("int32")
_CAST = {
    **dict.fromkeys(("int32", "sint32"), pa.int32()),
    **dict.fromkeys(("uint32", "fixed32"), pa.int64()),
    **dict.fromkeys(("uint64", "fixed64"), pa.decimal128(20, 0)),
}
_CHECKED = ("int32", "sint32", "uint32")
_SECOND = 1_000_000_000
_LONG = 8
"""Size of a long in bytes."""

_IN_LONG = 18
"""Number of digits that always fit a long."""

_LONGEST_UNSCALED = 15
_ALWAYS_FIT = 37
"""Number of digits that hold any number of the longest unscaled value."""


def scalar_column(kind: Scalar | Enum, read: pa.Array) -> Column:
    """Convert scalars, or an enum's numbers to its names or numbers, from their wire messages; null stays null."""
    if isinstance(kind, Enum):
        return scalar_column(_INT32, read) if kind.as_number else _names(kind, read)
    if kind.kind == "string":
        return _texts(read)
    if kind.kind not in _CAST:
        return read, None
    doubtful = None
    if kind.kind in _CHECKED and len(read) > read.null_count:
        least, greatest = INTEGERS[kind.kind]
        extremes = pc.min_max(read)
        if extremes["min"].as_py() < least or extremes["max"].as_py() > greatest:
            beyond = pc.or_(pc.less(read, least), pc.greater(read, greatest))
            doubtful = pc.fill_null(beyond, False).to_numpy(zero_copy_only=False)
            read = pc.if_else(pa.array(doubtful), pa.scalar(0, read.type), read)
    return pc.cast(read, _CAST[kind.kind]), doubtful


def _names(kind: Enum, read: pa.Array) -> Column:
    numbers = pa.array(list(kind.names), read.type)
    found = pc.index_in(read, value_set=numbers)
    names = pa.array(list(kind.names.values()), pa.string()).take(found)
    return names, None if found.null_count == read.null_count else _both(read.is_valid(), found.is_null())


def _texts(read: pa.BinaryArray) -> Column:
    try:
        return pc.cast(read, pa.string()), None
    except pa.ArrowInvalid:
        doubtful = np.array([one is not None and not _is_utf8(one) for one in read.to_pylist()], np.bool_)
        if not doubtful.any():
            doubtful[:] = True
        return pc.cast(pc.if_else(pa.array(doubtful), pa.scalar(b"", read.type), read), pa.string()), doubtful


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def texts_of(kind: Json, read: pa.BinaryArray) -> Column:
    """Return JSON texts of serialized messages, none of them null."""
    parse = getattr(struct_pb2, kind.name.rpartition(".")[2]).FromString
    texts: list[str] = []
    doubtful = np.zeros(len(read), np.bool_)
    for index, value in enumerate(read.to_pylist()):
        try:
            texts.append(json_text(parse(value)))
        except (DecodeError, ValueProblem):
            doubtful[index] = True
            texts.append("")
    return pa.array(texts, pa.string()), doubtful


def logical_column(kind: Logical, read: pa.StructArray, target: pa.DataType) -> Column:
    """Return values of a logical type from the fields of its messages; null stays null."""
    there = np.asarray(read.is_valid())
    if kind.kind == "decimal":
        return _decimals(kind, read.field(0), _number(read, 2), there, target)
    parts = [_number(read, index) for index in range(len(kind.parts))]
    match kind.kind:
        case "timestamp":
            numbers, good = _timestamps(parts[0], parts[1])
        case "date":
            numbers, good = _days(parts[0], parts[1], parts[2])
        case "time":
            numbers, good = _times(parts[0], parts[1], parts[2], parts[3])
    storage = np.int32 if kind.kind == "date" else np.int64
    column = pa.array(numbers.astype(storage), mask=~there).view(target)
    return column, None if good.all() else there & ~good


def _number(read: pa.StructArray, index: int) -> Any:
    numbers = read.field(index)
    return (pc.fill_null(numbers, 0) if numbers.null_count else numbers).to_numpy(zero_copy_only=False)


def _timestamps(seconds: Any, nanos: Any) -> tuple[Any, Mask]:
    first, last = FIRST_MICROSECOND // 1_000_000, LAST_MICROSECOND // 1_000_000
    good = (seconds >= first) & (seconds <= last) & (nanos >= 0) & (nanos < _SECOND) & (nanos % 1000 == 0)
    return np.where(good, seconds, 0) * 1_000_000 + np.where(good, nanos, 0) // 1000, good


def _days(year: Any, month: Any, day: Any) -> tuple[Any, Mask]:
    good = (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]").astype(np.int64) + np.where(good, day, 1) - 1
    following = (months + 1).astype("datetime64[D]").astype(np.int64)
    return days, good & (days < following)


def _times(hours: Any, minutes: Any, seconds: Any, nanos: Any) -> tuple[Any, Mask]:
    good = (nanos >= 0) & (nanos < _SECOND) & (nanos % 1000 == 0)
    for part, least in ((hours, 24), (minutes, 60), (seconds, 60)):
        good &= (part >= 0) & (part < least)
    hours, minutes, seconds, nanos = (np.where(good, each, 0) for each in (hours, minutes, seconds, nanos))
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + nanos // 1000, good


def _decimals(kind: Logical, unscaled: pa.BinaryArray, scale: Any, there: Mask, target: pa.DataType) -> Column:
    lengths = pc.fill_null(pc.binary_length(unscaled), 0).to_numpy(zero_copy_only=False)
    good = (scale == kind.scale) & (lengths > 0) & (lengths <= _LONGEST_UNSCALED)
    if not good.any():
        return pa.nulls(len(unscaled), target), there
    numbers = _unscaled(unscaled, np.where(good, lengths, 1))
    if kind.precision <= _IN_LONG and (lengths <= _LONG).all():
        good &= np.abs(numbers[:, 0]) < 10**kind.precision
    elif kind.precision < _ALWAYS_FIT:
        wide = pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(unscaled), [None, pa.py_buffer(numbers)])
        limit = Decimal(10**kind.precision).scaleb(-kind.scale)
        beyond = pc.or_(pc.greater_equal(wide, _wide(limit, kind)), pc.less_equal(wide, _wide(-limit, kind)))
        good &= ~beyond.to_numpy(zero_copy_only=False)
    valid = good & there
    known = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    column = pa.Array.from_buffers(target, len(unscaled), [known, pa.py_buffer(numbers)])
    return column, None if known is None else there & ~good


def _wide(number: Decimal, kind: Logical) -> pa.Scalar:
    return pa.scalar(number, pa.decimal128(38, kind.scale))


def _unscaled(values: pa.BinaryArray, lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Return the low and high words of big-endian numbers of up to 15 bytes in two's complement."""
    _, offsets, data = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset + 1 : values.offset + len(values) + 1].astype(np.int64)
    # Eight bytes from any byte on; sixteen stand before the first one. Bytes outside a number are shifted out.
    before = np.concatenate([np.zeros(2 * _LONG, np.uint8), np.frombuffer(data, np.uint8)])
    words = np.ndarray(len(before) - _LONG + 1, ">i8", before, strides=(1,))
    found = np.empty((len(values), 2), np.int64)
    found[:, 0] = words[ends + _LONG]
    beyond = 8 * np.maximum(_LONG - lengths, 0).astype(np.int64)
    found[:, 0] = found[:, 0] << beyond >> beyond
    found[:, 1] = found[:, 0] >> 63
    longer = np.flatnonzero(lengths > _LONG)
    if len(longer):
        beyond = 8 * (2 * _LONG - lengths[longer]).astype(np.int64)
        found[longer, 1] = words[ends[longer]].astype(np.int64) << beyond >> beyond
    return found


def _both(one: pa.BooleanArray, other: pa.BooleanArray) -> Mask:
    return pc.and_(one, other).to_numpy(zero_copy_only=False)


Indices = npt.NDArray[np.int64]


class BlockColumns:
    """Convert the fields of wire messages to columns, and note which records are doubtful.

    Args:
        records: Number of records that were read.

    Attributes:
        doubtful: Mask of the doubtful records.
    """

    def __init__(self, records: int) -> None:
        self.doubtful: npt.NDArray[np.bool_] = np.zeros(records, np.bool_)

    def message(self, tree: Message, read: pa.RecordBatch, columns: pa.Schema) -> list[pa.Array]:
        """Return the columns of a block.

        Args:
            tree: The message.
            read: The fields of its wire message.
            columns: The resulting columns.
        """
        fields = dict(zip(read.schema.names, read.columns, strict=True))
        return self._members(tree, fields, list(columns), np.arange(read.num_rows))

    def _members(
        self, tree: Message, read: Mapping[str, pa.Array], columns: Sequence[pa.Field], owners: Indices
    ) -> list[pa.Array]:
        """Return the members of messages that all exist.

        Args:
            tree: The message.
            read: The message's fields, by their names in the wire message.
            columns: The resulting members.
            owners: The record of each message.
        """
        self._check_oneofs(tree, read, owners)
        made: list[pa.Array] = []
        for member, column in zip(tree.members, columns, strict=True):
            if isinstance(member, Field):
                made.append(self._field(member, read[name_of(member)], column.type, owners))
                continue
            inner = [
                self._field(each, read[name_of(each)], column.type.field(index).type, owners)
                for index, each in enumerate(member.fields)
            ]
            there = np.any([_valid(read[name_of(each)]) for each in member.fields], axis=0)
            made.append(pa.StructArray.from_arrays(inner, fields=list(column.type), mask=pa.array(~there)))
        return made

    def _check_oneofs(self, tree: Message, read: Mapping[str, pa.Array], owners: Indices) -> None:
        groups: dict[str, list[pa.Array]] = {}
        for part in tree.parts:
            if part.oneof is not None:
                groups.setdefault(part.oneof, []).append(read[name_of(part)])
        for group in groups.values():
            there = np.sum([_valid(each) for each in group], axis=0)
            self.doubtful[owners[there > 1]] = True

    def _field(self, field: Field, read: pa.Array, kind: pa.DataType, owners: Indices) -> pa.Array:
        match field.shape:
            case "one":
                return self._one(field, read, kind, owners)
            case "list":
                offsets, inside = _spread(read, owners)
                elements = self._value(field.type, read.flatten(), kind.value_type, inside)
                return pa.ListArray.from_arrays(offsets, elements, type=kind)
            case "map":
                return self._map(field, read, kind, owners)

    def _one(self, field: Field, read: pa.Array, kind: pa.DataType, owners: Indices) -> pa.Array:
        if not read.null_count:
            return self._value(field.type, read, kind, owners)
        if field.absent == "refused":
            self.doubtful[owners[~_valid(read)]] = True
        if field.absent == "null":
            return self._nullable(field.type, read, kind, owners)
        return self._value(field.type, _filled(field, read), kind, owners)

    def _nullable(self, kind: Type, read: pa.Array, target: pa.DataType, owners: Indices) -> pa.Array:
        """Convert values of which some are null."""
        if not isinstance(kind, Message | Json | Marker):
            return self._value(kind, read, target, owners)
        there = _valid(read)
        if not there.any():
            return pa.nulls(len(read), target)
        found = self._value(kind, read.filter(pa.array(there)), target, owners[there])
        return found.take(pa.array(np.cumsum(there) - 1, mask=~there))

    def _map(self, field: Field, read: pa.ListArray, kind: pa.MapType, owners: Indices) -> pa.Array:
        assert field.key is not None
        offsets, inside = _spread(read, owners)
        keys, values = read.flatten().flatten()
        keys = _filled(Field(1, "key", field.key, default=DEFAULTS[field.key.kind]), keys)
        if len(keys) > 1:
            entries = pa.table({"map": np.repeat(np.arange(len(read)), np.diff(offsets)), "key": keys})
            counts = entries.group_by(["map", "key"]).aggregate([([], "count_all")])
            if counts.num_rows < len(keys):
                twice = counts.filter(pc.greater(counts["count_all"], 1))["map"].to_numpy()
                self.doubtful[owners[twice]] = True
        items = self._value(field.type, _filled(field, values), kind.item_type, inside)
        return pa.MapArray.from_arrays(offsets, self._value(field.key, keys, kind.key_type, inside), items, type=kind)

    def _value(self, kind: Type, read: pa.Array, target: pa.DataType, owners: Indices) -> pa.Array:
        """Convert values of one type; no message, JSON or marker is null, other values may be."""
        match kind:
            case Scalar() | Enum():
                return self._noted(scalar_column(kind, read), owners)
            case Logical():
                return self._noted(logical_column(kind, read, target), owners)
            case Wrapper():
                value = _filled(kind.value, read.field(0))
                if read.null_count:
                    value = pc.if_else(read.is_valid(), value, pa.scalar(None, value.type))
                return self._value(kind.value.type, value, target, owners)
            case Json():
                return self._noted(texts_of(kind, read), owners)
            case Marker():
                empty = pc.equal(pc.binary_length(read), 0).to_numpy(zero_copy_only=False)
                return self._noted((pa.array(np.ones(len(read), np.bool_)), ~empty), owners)
            case Message():
                fields = dict(zip((each.name for each in read.type), read.flatten(), strict=True))
                inner = self._members(kind, fields, list(target), owners)
                return pa.StructArray.from_arrays(inner, fields=list(target))

    def _noted(self, column: Column, owners: Indices) -> pa.Array:
        values, doubtful = column
        if doubtful is not None:
            self.doubtful[owners[doubtful]] = True
        return values


def _filled(field: Field, read: pa.Array) -> pa.Array:
    """Replace nulls by the field's default; a null message by one without fields."""
    if not read.null_count:
        return read
    match field.type:
        case Scalar() | Enum():
            default = field.default.encode() if isinstance(field.default, str) else field.default
        case Json() | Marker():
            default = b""
        case _:
            # The fields of a null message are null, flattened.
            return pa.StructArray.from_arrays(read.flatten(), fields=list(read.type))
    return pc.fill_null(read, pa.scalar(default, read.type))


def _spread(read: pa.ListArray, owners: Indices) -> tuple[pa.Array, Indices]:
    """Return offsets of lists, and the record of each of their elements; the list of a missing message is empty."""
    lengths = pc.fill_null(pc.list_value_length(read), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(read) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets), np.repeat(owners, lengths)


def _valid(read: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(read.is_valid())
