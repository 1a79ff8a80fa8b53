"""Wire messages of Protobuf, and the walk over the fields in their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf import struct_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from jobs.records.formats.protobuf.message_tree import (
    Enum,
    Field,
    Json,
    Marker,
    Message,
    Scalar,
    Type,
)

_PACKAGE = "frazil"
_WIDE: Mapping[str, str] = {"int32": "int64", "uint32": "uint64", "sint32": "sint64", "string": "bytes"}


def name_of(field: Field) -> str:
    """Return the name of a field in its wire message."""
    return f"f{field.number}"


def wire_kind(kind: Scalar | Enum) -> str:
    """Return the kind of scalar that a field is parsed as."""
    return "int64" if isinstance(kind, Enum) else _WIDE.get(kind.kind, kind.kind)


def wire_message(tree: Message, *, nested: bool) -> Descriptor:
    """Return the wire message of a tree, on a pool of its own.

    Args:
        tree: The message.
        nested: Whether JSON values stay messages, and the fields of a oneof belong together; otherwise they are bytes
            and plain fields, which is all that ptars handles.
    """
    file = FileDescriptorProto(name="frazil.proto", package=_PACKAGE, syntax="proto2")
    pool = DescriptorPool()
    if nested:
        file.dependency.append(struct_pb2.DESCRIPTOR.name)
        pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    root = _Maker(file, nested).message(tree.parts)
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(f"{_PACKAGE}.{root}")


class _Maker:
    def __init__(self, file: FileDescriptorProto, nested: bool) -> None:
        self._file: FileDescriptorProto = file
        self._nested: bool = nested

    def message(self, parts: tuple[Field, ...]) -> str:
        name = f"M{len(self._file.message_type)}"
        made: DescriptorProto = self._file.message_type.add(name=name)
        oneofs: dict[str, int] = {}
        for part in sorted(parts, key=lambda each: each.number):
            field = self._field(made, part)
            if self._nested and part.oneof is not None:
                if part.oneof not in oneofs:
                    oneofs[part.oneof] = len(oneofs)
                    made.oneof_decl.add(name=f"o{oneofs[part.oneof]}")
                field.oneof_index = oneofs[part.oneof]
        return name

    def _field(self, made: DescriptorProto, part: Field) -> FieldDescriptorProto:
        label = "LABEL_OPTIONAL" if part.shape == "one" else "LABEL_REPEATED"
        field = made.field.add(name=name_of(part), number=part.number, label=label)
        if part.shape == "map":
            assert part.key is not None
            entry = (Field(1, "key", part.key), Field(2, "value", part.type))
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{self.message(entry)}"
        else:
            self._set_type(field, part.type)
        if part.group:
            field.type = FieldDescriptorProto.TYPE_GROUP
        return field

    def _set_type(self, field: FieldDescriptorProto, kind: Type) -> None:
        match kind:
            case Scalar() | Enum():
                field.type = FieldDescriptorProto.Type.Value(f"TYPE_{wire_kind(kind).upper()}")
            case Json() if self._nested:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{kind.name}"
            case Marker() if self._nested:
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{self.message(())}"
            case Json() | Marker():
                field.type = FieldDescriptorProto.TYPE_BYTES
            case _:
                name = self.message(kind.parts)
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{_PACKAGE}.{name}"


Places: TypeAlias = npt.NDArray[np.int64]

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_WIRE_TYPES = {
    **dict.fromkeys(("int64", "uint64", "sint64", "bool"), _VARINT),
    **dict.fromkeys(("fixed64", "sfixed64", "double"), _EIGHT),
    **dict.fromkeys(("fixed32", "sfixed32", "float"), _FOUR),
    "bytes": _BYTES,
}
_FIXED = {
    "fixed64": np.uint64,
    "sfixed64": np.int64,
    "double": np.float64,
    "fixed32": np.uint32,
    "sfixed32": np.int32,
    "float": np.float32,
}
_MORE = 0x80
"""The bit of a varint's byte that says that another byte follows."""

_ONE = np.uint64(1)
_HIGHEST_BITS = np.uint64(0x8080808080808080)
_SEVEN_BITS = [
    (np.uint64(low), np.uint64(low << shift * 8), np.uint64(shift))
    for low, shift in ((0x007F007F007F007F, 1), (0x00003FFF00003FFF, 2), (0x000000000FFFFFFF, 4))
]
"""Steps that put the seven bits of each byte beside those of its neighbour, then fourteen, then twenty-eight."""

_PAD = 16
_WORD = 8


def walkable(tree: Message) -> bool:
    """Return whether a message has no lists and maps, however deep."""
    return all(
        part.shape == "one" and (not isinstance(part.type, Message) or walkable(part.type)) for part in tree.parts
    )


class WireWalk:
    """Walk along the messages of a block.

    Args:
        values: One message each.

    Attributes:
        good: Mask of the messages that have been accounted for so far.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        _, offsets, data = values.buffers()
        bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
        size = int(bounds[-1])
        self._bytes: npt.NDArray[np.uint8] = np.zeros(size + _PAD, np.uint8)
        self._bytes[:size] = np.frombuffer(data, np.uint8, size) if size else 0
        # Eight bytes from any byte on, as one number.
        self._words: Any = np.ndarray(len(self._bytes) - _WORD + 1, "<u8", self._bytes, strides=(1,))
        self._begins: Places = bounds[:-1]
        self._ends: Places = bounds[1:]
        self.good: npt.NDArray[np.bool_] = np.ones(len(values), np.bool_)

    def read(self, tree: Message) -> pa.RecordBatch:
        """Return the fields of the messages, by the names of this module; null where a message lacks one."""
        columns = self._message(tree.parts, self._begins, self._ends, np.arange(len(self.good)))
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _message(self, parts: tuple[Field, ...], at: Places, ends: Places, owners: Places) -> dict[str, pa.Array]:
        """Return the fields of messages that exist, each between two places.

        Args:
            parts: The fields.
            at: The place where each message begins.
            ends: The place where it ends.
            owners: The record that contains it.
        """
        columns: dict[str, pa.Array] = {}
        for part in sorted(parts, key=lambda each: each.number):
            tag = _tag(part)
            there = (at + len(tag) <= ends) & self._begin_with(tag, at)
            if there.all():
                columns[name_of(part)], at = self._value(part.type, at + len(tag), ends, owners)
                continue
            rows = np.flatnonzero(there)
            found, after = self._value(part.type, at[rows] + len(tag), ends[rows], owners[rows])
            columns[name_of(part)] = found.take(pa.array(np.cumsum(there) - 1, mask=~there))
            at = at.copy()
            at[rows] = after
        self.good[owners[at != ends]] = False
        return columns

    def _begin_with(self, tag: bytes, at: Places) -> npt.NDArray[np.bool_]:
        if len(tag) == 1:
            return self._bytes[at] == tag[0]
        mask = np.uint64((1 << 8 * len(tag)) - 1)
        return (self._words[at] & mask) == np.uint64(int.from_bytes(tag, "little"))

    def _value(self, kind: Type, at: Places, ends: Places, owners: Places) -> tuple[pa.Array, Places]:
        """Return values and their ends; a value that is cut off ends with its message, and its record is not good."""
        if isinstance(kind, Scalar | Enum):
            name = wire_kind(kind)
            if _WIRE_TYPES[name] == _VARINT:
                numbers, after = self._varints(at, ends, owners)
                return _integers(name, numbers), after
            if name in _FIXED:
                width = np.dtype(_FIXED[name]).itemsize
                after = self._checked(at + width, ends, owners)
                words = self._words[at] if width == _WORD else self._words[at].astype(np.uint32)
                return pa.array(words.view(_FIXED[name])), after
        lengths, begins = self._varints(at, ends, owners)
        # A length beyond the message, however large, is found before it is added to anything.
        fits = lengths <= (ends - begins).astype(np.uint64)
        self.good[owners[~fits]] = False
        after = begins + np.where(fits, lengths, 0).astype(np.int64)
        if isinstance(kind, Scalar | Enum | Json | Marker):
            return self._slices(begins, after), after
        columns = self._message(kind.parts, begins, after, owners)
        return pa.StructArray.from_arrays(list(columns.values()), names=list(columns)), after

    def _varints(self, at: Places, ends: Places, owners: Places) -> tuple[npt.NDArray[np.uint64], Places]:
        """Return numbers of up to ten bytes, and where each ends."""
        first = self._bytes[at]
        if not len(first) or first.max() < _MORE:
            return first.astype(np.uint64), self._checked(at + 1, ends, owners)
        words = self._words[at]
        # The highest bit of the last byte of the number; 0 if that byte is none of these eight.
        stops = ~words & _HIGHEST_BITS
        last = stops & (~stops + _ONE)
        numbers = words & ((last << _ONE) - _ONE) & ~_HIGHEST_BITS
        for low, high, shift in _SEVEN_BITS:
            numbers = (numbers & low) | ((numbers & high) >> shift)
        # 2^(8n - 1) is half of 2^8n.
        after = at + (np.frexp(last.astype(np.float64))[1] >> 3)
        if len(longer := np.flatnonzero(last == 0)):
            ninth, tenth = self._bytes[at[longer] + 8], self._bytes[at[longer] + 9]
            further = ninth >= _MORE
            numbers[longer] |= (ninth & 0x7F).astype(np.uint64) << np.uint64(56)
            numbers[longer] |= np.where(further, tenth & 1, 0).astype(np.uint64) << np.uint64(63)
            after[longer] = at[longer] + 9 + further
            self.good[owners[longer[further & (tenth > 1)]]] = False
        return numbers, self._checked(after, ends, owners)

    def _checked(self, after: Places, ends: Places, owners: Places) -> Places:
        beyond = after > ends
        if not beyond.any():
            return after
        self.good[owners[beyond]] = False
        return np.minimum(after, ends)

    def _slices(self, begins: Places, ends: Places) -> pa.Array:
        """Return the bytes from each begin to its end: every other item of an array of all bytes in between."""
        offsets = np.empty(2 * len(begins), np.int32)
        offsets[::2], offsets[1::2] = begins, ends
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes)]
        every = pa.Array.from_buffers(pa.binary(), max(len(offsets) - 1, 0), buffers)
        return every.take(pa.array(np.arange(0, len(every), 2)))


def _tag(part: Field) -> bytes:
    kind = part.type
    wire_type = _WIRE_TYPES[wire_kind(kind)] if isinstance(kind, Scalar | Enum) else _BYTES
    tag = part.number << 3 | wire_type
    found = bytearray()
    while tag > 0x7F:
        found.append(tag & 0x7F | 0x80)
        tag >>= 7
    return bytes([*found, tag])


def _integers(kind: str, numbers: npt.NDArray[np.uint64]) -> pa.Array:
    match kind:
        case "bool":
            return pa.array(numbers != 0)
        case "sint64":
            halves = (numbers >> np.uint64(1)).view(np.int64)
            return pa.array(halves ^ -(numbers & np.uint64(1)).view(np.int64))
        case "uint64":
            return pa.array(numbers)
        case _:
            return pa.array(numbers.view(np.int64))
