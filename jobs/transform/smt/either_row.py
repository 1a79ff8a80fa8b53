"""Either row of a change event: columns that hold the row before a change as well as the one behind it.

A schema that grows field by field, or that is inferred, may know more of the one than of the other.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice

from jobs.schema.compatibility import widened_type
from jobs.schema.field_ids import fresh_schema
from jobs.transform.columns import optional, retyped


def either_fields(after: ice.StructType, before: ice.StructType) -> tuple[ice.NestedField, ...] | None:
    """The fields of a struct that takes the values of both, in the order of the first one; None if there is none.

    A field that one of them lacks, or that may be null in one, is optional.
    """
    known = {each.name: each for each in before.fields}
    names = {each.name for each in after.fields}
    found: list[ice.NestedField] = []
    for each in after.fields:
        other = known.get(each.name)
        if other is None:
            found.append(optional(each))
        elif (kind := _either(each.field_type, other.field_type)) is None:
            return None
        else:
            field = retyped(each, kind)
            found.append(field if other.required else optional(field))
    return (*found, *(optional(each) for each in before.fields if each.name not in names))


def _either(one: ice.IcebergType, other: ice.IcebergType) -> ice.IcebergType | None:
    match one, other:
        case ice.StructType(), ice.StructType():
            fields = either_fields(one, other)
            return None if fields is None else fresh_schema(fields).as_struct()
        case ice.ListType(), ice.ListType():
            element = _either(one.element_type, other.element_type)
            required = one.element_required and other.element_required
            return None if element is None else ice.ListType(1, element, element_required=required)
        case ice.MapType(), ice.MapType():
            value = _either(one.value_type, other.value_type) if one.key_type == other.key_type else None
            required = one.value_required and other.value_required
            return None if value is None else ice.MapType(1, one.key_type, 2, value, value_required=required)
        case _ if one.is_primitive and other.is_primitive:
            return one if one == other else widened_type(one, other) or widened_type(other, one)
        case _:
            return None


def as_either(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The values in a type that `either_fields` has made of theirs and of another's."""
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind):
        return struct_of(array, [kind.field(number) for number in range(kind.num_fields)])
    if pa.types.is_list(kind):
        offsets, start, end = _offsets(array)
        values = as_either(array.values.slice(start, end - start), kind.value_type)
        return pa.ListArray.from_arrays(offsets, values, type=kind, mask=_nulls(array))
    if pa.types.is_map(kind):
        offsets, start, end = _offsets(array)
        keys, items = (each.slice(start, end - start) for each in (array.keys, array.items))
        keys, items = as_either(keys, kind.key_type), as_either(items, kind.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=kind, mask=_nulls(array))
    return array.cast(kind)


def struct_of(array: pa.StructArray, fields: Iterable[pa.Field]) -> pa.StructArray:
    """Structs with these fields, of which some may be null in all of them; a struct that is null stays so."""
    wanted = list(fields)
    names = [array.type.field(number).name for number in range(array.type.num_fields)]
    children = [
        as_either(array.field(names.index(each.name)), each.type)
        if each.name in names
        else pa.nulls(len(array), each.type)
        for each in wanted
    ]
    return pa.StructArray.from_arrays(children, fields=wanted, mask=array.is_null())


def _offsets(array: pa.ListArray | pa.MapArray) -> tuple[pa.Array, int, int]:
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    start, end = int(offsets[0]), int(offsets[-1])
    return pa.array((offsets - start).astype(np.int32)), start, end


def _nulls(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None
