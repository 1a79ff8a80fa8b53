"""Projection of Arrow arrays to the types of a table's columns in its data files.

Only conversions that keep every value are made: to a wider integer, float or decimal, to a coarser or equal unit of
time without loss, to another layout. Everything else is refused, never cast.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from jobs.base.errors import FrazilError
from jobs.records.formats.interface.problems import NULL_IN_REQUIRED, OUT_OF_RANGE
from jobs.records.schema.compatibility import holds

# bool array, True for rows that are null because a parent is null
Mask: TypeAlias = np.ndarray


class ProjectionError(FrazilError):
    """Rows do not fit a table: a missing column, another type, or null in a required column.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: alter the table, or correct `decode.schema`; then `frazil validate`
    """


class UnfitValueError(ProjectionError):
    """A value does not fit its column, although other values of its type do.

    Safe: The record becomes a dead letter, within `errors.tolerance`.
    Next: `frazil letters S`
    """

    def __init__(self, error_class: str, path: str, message: str) -> None:
        super().__init__(message)
        self.error_class: str = error_class
        self.path: str = path


def projected(
    values: pa.Array | None, kind: IcebergType, target: pa.Field, path: str, rows: int, above: Mask | None = None
) -> pa.Array:
    """Values in the type of a column; an array that fits already is returned as it is.

    Args:
        values: None if the rows lack the column.
        target: The column's Arrow field.
        path: The column's full name, for errors.
        above: Rows that are null because a parent of the column is null.

    Raises:
        ProjectionError: The column cannot hold values of this type.
        UnfitValueError: A null in a required column, or a value beyond the column's range.
    """
    if values is None or pa.types.is_null(values.type):
        return _missing(rows, target, path, above)
    if isinstance(values, pa.DictionaryArray):
        return projected(values.dictionary_decode(), kind, target, path, rows, above)
    nulls_allowed = target.nullable or not values.null_count
    if nulls_allowed and values.type == target.type and not _has_required(target.type):
        return values
    if isinstance(kind, StructType):
        return _project_struct(values, kind, target, path, above)
    if isinstance(kind, ListType):
        return _project_list(values, kind, target, path, above)
    if isinstance(kind, MapType):
        return _project_map(values, kind, target, path, above)
    fitting = _cast(values, kind, target.type, path)
    if nulls_allowed:
        return fitting
    _refuse_nulls(fitting, path, above)
    # Arrow's Parquet writer refuses nulls in a required field even if the struct around it is null, and JSON decoded
    # into such a struct has nulls there. Without the bitmap the values are whatever the buffer holds, which nobody
    # reads.
    return _without_bitmap(fitting)


def _missing(rows: int, target: pa.Field, path: str, above: Mask | None) -> pa.Array:
    """A column that the rows lack: nulls, or fillers if it is required and every row's parent is null."""
    kind = target.type
    if target.nullable and not (pa.types.is_struct(kind) and _has_required(kind)):
        return pa.nulls(rows, kind)
    if not target.nullable and rows and (above is None or not above.all()):
        raise ProjectionError(_required(path))
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        children = [_missing(rows, field, path, np.ones(rows, dtype=bool)) for field in fields]
        mask = pa.array(np.full(rows, target.nullable))
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    no_offsets = pa.array(np.zeros(rows + 1, dtype=np.int32))
    if pa.types.is_map(kind):
        empty = pa.array([], kind)
        return pa.MapArray.from_arrays(no_offsets, empty.keys, empty.items, type=kind)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(no_offsets, pa.array([], kind.value_type), type=kind)
    return _without_bitmap(pa.nulls(rows, kind))


def _without_bitmap(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(values.type, _without_bitmap(values.storage))
    return pa.Array.from_buffers(values.type, len(values), [None, *values.buffers()[1:]], 0, values.offset)


def _project_struct(values: pa.Array, kind: StructType, target: pa.Field, path: str, above: Mask | None) -> pa.Array:
    if not isinstance(values, pa.StructArray):
        raise _misfit(values.type, target.type, path)
    names = [values.type.field(i).name for i in range(values.type.num_fields)]
    if unknown := sorted(set(names) - {child.name for child in kind.fields}):
        raise ProjectionError(f"the table has no column {', '.join(f'`{path}.{name}`' for name in unknown)}")
    mask = _null_mask(values)
    around = mask if above is None else above if mask is None else above | mask
    children = [
        projected(
            values.field(names.index(child.name)) if child.name in names else None,
            child.field_type,
            target.type.field(i),
            f"{path}.{child.name}",
            len(values),
            around,
        )
        for i, child in enumerate(kind.fields)
    ]
    mask = _own_mask(values, target, path, above)
    fields = [target.type.field(i) for i in range(target.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _project_list(values: pa.Array, kind: ListType, target: pa.Field, path: str, above: Mask | None) -> pa.Array:
    if not isinstance(values, pa.ListArray | pa.LargeListArray):
        raise _misfit(values.type, target.type, path)
    offsets, start, end = _offsets(values)
    items = values.values.slice(start, end - start)
    element = projected(items, kind.element_type, target.type.value_field, f"{path}[]", len(items), None)
    mask = _own_mask(values, target, path, above)
    return pa.ListArray.from_arrays(offsets, element, type=target.type, mask=mask)


def _project_map(values: pa.Array, kind: MapType, target: pa.Field, path: str, above: Mask | None) -> pa.Array:
    if not isinstance(values, pa.MapArray):
        raise _misfit(values.type, target.type, path)
    offsets, start, end = _offsets(values)
    keys, items = values.keys.slice(start, end - start), values.items.slice(start, end - start)
    return pa.MapArray.from_arrays(
        offsets,
        projected(keys, kind.key_type, target.type.key_field, f"{path}.key", len(keys), None),
        projected(items, kind.value_type, target.type.item_field, f"{path}.value", len(items), None),
        type=target.type,
        mask=_own_mask(values, target, path, above),
    )


def _offsets(values: pa.ListArray | pa.LargeListArray | pa.MapArray) -> tuple[pa.Array, int, int]:
    """Offsets of a list, which may be a slice of another, counted from its own first element."""
    offsets = values.offsets.to_numpy(zero_copy_only=False)
    start, end = int(offsets[0]), int(offsets[-1])
    return pa.array((offsets - start).astype(np.int32)), start, end


def _null_mask(values: pa.Array) -> Mask | None:
    return values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None


def _own_mask(values: pa.Array, target: pa.Field, path: str, above: Mask | None) -> pa.Array | None:
    """Nulls for a rebuilt array; none for a required one, whose nulls come from its parents."""
    if not values.null_count:
        return None
    if target.nullable:
        return values.is_null()
    _refuse_nulls(values, path, above)
    return None


def _refuse_nulls(values: pa.Array, path: str, above: Mask | None) -> None:
    if above is None or bool((values.is_null().to_numpy(zero_copy_only=False) & ~above).any()):
        raise UnfitValueError(NULL_IN_REQUIRED, path, _required(path))


def _required(path: str) -> str:
    return f"the column `{path}` is required and a row has none"


def _has_required(kind: pa.DataType) -> bool:
    """Whether a type contains a required field; keys of maps cannot be null in Arrow and do not count."""
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _has_required(kind.item_type) or _has_required(kind.key_type)
    return any(not kind.field(i).nullable or _has_required(kind.field(i).type) for i in range(kind.num_fields))


def _cast(values: pa.Array, kind: IcebergType, target: pa.DataType, path: str) -> pa.Array:
    if values.type == target:
        return values
    if isinstance(target, pa.BaseExtensionType) and values.type == target.storage_type:
        return pa.ExtensionArray.from_storage(target, values)
    if not _keeps_values(values.type, kind, target):
        raise _misfit(values.type, target, path)
    try:
        return values.cast(target)
    except pa.ArrowInvalid as problem:
        raise UnfitValueError(OUT_OF_RANGE, path, f"the column `{path}` does not fit {target}: {problem}") from problem


def _keeps_values(source: pa.DataType, kind: IcebergType, target: pa.DataType) -> bool:
    """Whether a cast keeps every value or fails."""
    kinds = pa.types
    if (number := _number(source)) is not None:
        return holds(number, kind)
    if kinds.is_timestamp(source) and kinds.is_timestamp(target):
        return (source.tz is None) == (target.tz is None)
    if kinds.is_time(source) and kinds.is_time(target):
        return True
    text = (pa.string(), pa.large_string(), pa.string_view())
    octets = (pa.binary(), pa.large_binary(), pa.binary_view())
    return (source in text and target in text) or (source in octets and target in octets)


def _number(source: pa.DataType) -> IcebergType | None:
    """The smallest Iceberg type that keeps every number of an Arrow type; None if it is no number."""
    kinds = pa.types
    if kinds.is_signed_integer(source):
        return IntegerType() if source.bit_width <= 32 else LongType()
    if kinds.is_floating(source):
        return FloatType() if source.bit_width <= 32 else DoubleType()
    return DecimalType(source.precision, source.scale) if kinds.is_decimal(source) else None


def _misfit(source: pa.DataType, target: pa.DataType, path: str) -> ProjectionError:
    return ProjectionError(f"the column `{path}` of the rows is {source}, that of the table is {target}")
