"""Columns of a block: what DataFusion read of each node, in the Arrow types of rows.

What a value of a column cannot mean is told by its index, and handed up to the row that it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.formats.avro.block_schema import members
from jobs.formats.avro.block_values import convert_logical, convert_scaled
from jobs.formats.avro.nodes import Array, Enum, Fixed, Json, Map, Node, Null, Plain, Record, Union, Within
from jobs.formats.avro.schema import is_null

Indices = npt.NDArray[np.int64]

NONE: Indices = np.zeros(0, np.int64)


class Column(NamedTuple):
    """Converted values.

    Attributes:
        array: In the type of the rows; what stands at a refused index means nothing.
        refused: Indices of what the reference has to look at, ascending.
    """

    array: pa.Array
    refused: Indices = NONE


def convert(node: Node, array: pa.Array, kind: pa.DataType) -> Column:
    """The values of a node as rows have them.

    Args:
        node: The schema.
        array: As read with the schema of `block_schema`.
        kind: The Arrow type that rows have.
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
    """The columns of a record's fields.

    Args:
        node: The record.
        arrays: Of its fields that take bytes.
        kinds: The Arrow types of its fields that have a column.
    """
    read = zip(members(node), arrays, strict=True)
    filled = [(each, array) for each, array in read if not is_null(each)]
    return [convert(each, array, kind) for (each, array), kind in zip(filled, kinds, strict=True)]


def together(columns: Sequence[Column]) -> Indices:
    """What at least one of some columns of equal length refuses."""
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
    """The lists that some values are in, by the indices of those."""
    if not len(children):
        return NONE
    ends = array.offsets.to_numpy()
    return np.unique(np.searchsorted(ends, children, side="right") - 1)


def _double_keys(array: pa.MapArray) -> Indices:
    """The maps in which a key comes twice."""
    offsets = array.offsets.to_numpy()
    sizes = np.diff(offsets)
    if not len(sizes) or sizes.max() < 2:
        return NONE
    keys = array.keys.slice(int(offsets[0]), int(offsets[-1] - offsets[0])).dictionary_encode()
    parents = np.repeat(np.arange(len(sizes)), sizes)
    pairs = np.sort(parents * len(keys.dictionary) + keys.indices.to_numpy())
    return np.unique(pairs[1:][pairs[1:] == pairs[:-1]] // len(keys.dictionary))


def _optional(only: Node, number: int, array: pa.UnionArray, kind: pa.DataType) -> Column:
    """The values of a union of null and one other type, and a spare one that none has.

    Args:
        only: The other type.
        number: Its number.
        array: The union.
        kind: The Arrow type of rows.
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
    """A struct with the value in the field of its type, null in the others."""
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
    """The rows of columns that are not refused."""
    if not len(refused):
        return pa.RecordBatch.from_arrays(list(columns), schema=schema)
    relaxed = pa.schema([each.with_nullable(True) for each in schema])
    good = np.ones(len(columns[0]), np.bool_)
    good[refused] = False
    kept = pa.RecordBatch.from_arrays(list(columns), schema=relaxed).filter(pa.array(good))
    return pa.RecordBatch.from_arrays(kept.columns, schema=schema)
