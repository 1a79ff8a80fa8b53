"""Block columns: the fields of a block of wire messages, as the columns that the message becomes.

A value that is refused, or that only the reference can tell, makes its record doubtful; what stands in its place does
not matter, as doubtful records are decoded by the reference.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.protobuf.block_values import Column, logical_column, scalar_column, texts_of
from jobs.formats.protobuf.message_tree import (
    DEFAULTS,
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
from jobs.formats.protobuf.wire_messages import name_of

Indices = npt.NDArray[np.int64]


class BlockColumns:
    """Makes columns of the fields of wire messages, and notes which records are doubtful.

    Args:
        records: How many were read.

    Attributes:
        doubtful: By record.
    """

    def __init__(self, records: int) -> None:
        self.doubtful: npt.NDArray[np.bool_] = np.zeros(records, np.bool_)

    def message(self, tree: Message, read: pa.RecordBatch, columns: pa.Schema) -> list[pa.Array]:
        """The columns of a block.

        Args:
            tree: The message.
            read: The fields of its wire message.
            columns: What they become.
        """
        fields = dict(zip(read.schema.names, read.columns, strict=True))
        return self._members(tree, fields, list(columns), np.arange(read.num_rows))

    def _members(
        self, tree: Message, read: Mapping[str, pa.Array], columns: Sequence[pa.Field], owners: Indices
    ) -> list[pa.Array]:
        """The members of messages that are all there.

        Args:
            tree: The message.
            read: Its fields, by their names in the wire message.
            columns: What its members become.
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
        """Values of which some are null."""
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
        """Values of one type; of a message, JSON and a marker none is null, others are where they were."""
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
    """Where nothing was sent, the field's default; of a message, one without fields."""
    if not read.null_count:
        return read
    match field.type:
        case Scalar() | Enum():
            default = field.default.encode() if isinstance(field.default, str) else field.default
        case Json() | Marker():
            default = b""
        case _:
            # Its fields, flattened, are null where it is.
            return pa.StructArray.from_arrays(read.flatten(), fields=list(read.type))
    return pc.fill_null(read, pa.scalar(default, read.type))


def _spread(read: pa.ListArray, owners: Indices) -> tuple[pa.Array, Indices]:
    """Offsets of lists, and the record of each of their elements; a list of a message that is not there is empty."""
    lengths = pc.fill_null(pc.list_value_length(read), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(read) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.array(offsets), np.repeat(owners, lengths)


def _valid(read: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(read.is_valid())
