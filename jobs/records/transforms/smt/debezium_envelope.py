"""Envelope of Debezium: the columns before, after, op and source of a change event, and their use in steps.

The rows before and after a change go into columns that hold both: a schema that grows field by field, or that is
inferred, may know more of one than of the other."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.records.schema.compatibility import widened_type
from jobs.records.schema.iceberg_schema import fresh_schema
from jobs.records.transforms.columns import (
    Columns,
    TransformProblem,
    optional,
    retyped,
)
from jobs.records.transforms.transform import Rows


def either_fields(after: ice.StructType, before: ice.StructType) -> tuple[ice.NestedField, ...] | None:
    """Return the fields of a struct that takes the values of both, in the order of the first; None if there is none.

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
    """Return the values in a type from `either_fields`."""
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
    """Return structs with these fields, some of which may be null in all of them; a struct that is null stays so."""
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


def row_fields(columns: Columns, smt: str, *, deleted: bool = False) -> tuple[ice.NestedField, ...]:
    """Return the fields of an event's row.

    Args:
        columns: Columns of the events.
        smt: Name of the transform in messages.
        deleted: Whether a deletion gives the row before it; otherwise the row in `after`.

    Raises:
        TransformProblem: The columns are not those of Debezium's events.
    """
    kinds = {each.name: each.field_type for each in columns}
    after, before = kinds.get("after"), kinds.get("before")
    if not isinstance(after, ice.StructType) or "op" not in kinds:
        raise TransformProblem(
            f"{smt} takes events of Debezium, with a struct 'after' and 'op'; there are {', '.join(columns.names)}", ()
        )
    if before is None or not deleted:
        return after.fields
    fields = either_fields(after, before) if isinstance(before, ice.StructType) else None
    if fields is None:
        raise TransformProblem(f"{smt} needs 'before' with the fields of 'after', each of a type that takes both", ())
    return fields


def before_and_after(rows: Rows, into: Columns) -> tuple[pa.Array, pa.Array]:
    """Return the rows before and after the changes, of one type.

    Args:
        rows: The events.
        into: Columns that begin with those of the row.
    """
    before, after = struct_or_null(rows, "before"), struct_or_null(rows, "after")
    if before.type.equals(after.type):
        return before, after
    names = {*fields_of(before), *fields_of(after)}
    fields = [into.arrow.field(number).with_nullable(True) for number, each in enumerate(into.names) if each in names]
    return struct_of(before, fields), struct_of(after, fields)


def fields_of(array: pa.StructArray) -> list[str]:
    """Return the names of a struct's fields."""
    return [array.type.field(number).name for number in range(array.type.num_fields)]


def struct_or_null(rows: Rows, name: str) -> pa.Array:
    """Return a struct of an event; null in every row if the column does not exist."""
    if name in rows.columns.names:
        return rows.batch.column(rows.columns.index(name))
    return pa.nulls(rows.count, rows.columns.arrow.field(rows.columns.index("after")).type)


def field_path(columns: Columns, text: str) -> tuple[str, ...] | None:
    """Return the path of a field that is named in Debezium's short way; None if it does not exist."""
    if "." in text:
        struct, _, name = text.partition(".")
        return (struct, name) if _has(columns, (struct, name)) else None
    if text in ("op", "ts_ms", "ts_us", "ts_ns"):
        ways = [(text,)]
    elif text in ("id", "data_collection_order", "total_order"):
        ways = [("transaction", text)]
    else:
        ways = [("source", text), (text,)]
    return next((each for each in ways if _has(columns, each)), None)


def _has(columns: Columns, path: tuple[str, ...]) -> bool:
    return kind_at(columns, path) is not None


def kind_at(columns: Columns, path: tuple[str, ...]) -> ice.IcebergType | None:
    """Return the type of a column, or of a field of a struct; None if it does not exist."""
    kind = next((each.field_type for each in columns if each.name == path[0]), None)
    for name in path[1:]:
        fields = kind.fields if isinstance(kind, ice.StructType) else ()
        kind = next((each.field_type for each in fields if each.name == name), None)
    return kind


def value_of(rows: Rows, path: tuple[str, ...]) -> pa.Array:
    """Return the values at a path of `field_path`; null where a struct above is null."""
    array = rows.batch.column(rows.columns.index(path[0]))
    return pc.struct_field(array, list(path[1:])) if len(path) > 1 else array
