"""Narrowing of rows to the columns that one of their tables has, within structs as well."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice

from jobs.transform.columns import Columns


class Narrowing:
    """Leaves out of rows what a table does not have; what is no column of the rows' own stays, such as Kafka's.

    Args:
        every: The columns of the rows.
        kept: Those of them that the table has.
    """

    def __init__(self, every: Columns, kept: Columns) -> None:
        self._kept: dict[str, ice.IcebergType] = {each.name: each.field_type for each in kept}
        self._gone: frozenset[str] = frozenset(every.names) - self._kept.keys()

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without the others. Copies no values."""
        arrays, fields = list[pa.Array](), list[pa.Field]()
        for field, array in zip(rows.schema, rows.columns, strict=True):
            if field.name in self._gone:
                continue
            kind = self._kept.get(field.name)
            narrow = array if kind is None else _narrow(array, kind)
            arrays.append(narrow)
            fields.append(field if narrow is array else field.with_type(narrow.type))
        if not arrays:
            raise ValueError("a table without columns")
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _narrow(array: pa.Array, kind: ice.IcebergType) -> pa.Array:
    if isinstance(kind, ice.StructType) and isinstance(array, pa.StructArray):
        return _narrow_struct(array, kind)
    if isinstance(kind, ice.ListType) and isinstance(array, pa.ListArray):
        return _narrow_list(array, kind)
    return array


def _narrow_list(array: pa.ListArray, kind: ice.ListType) -> pa.Array:
    # A slice has its offsets as they are in the whole.
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    first, last = int(offsets[0]), int(offsets[-1])
    elements = array.values.slice(first, last - first)
    narrow = _narrow(elements, kind.element_type)
    if narrow is elements:
        return array
    return pa.ListArray.from_arrays(
        pa.array((offsets - first).astype(np.int32)),
        narrow,
        type=pa.list_(array.type.value_field.with_type(narrow.type)),
        mask=array.is_null() if array.null_count else None,
    )


def _narrow_struct(array: pa.StructArray, kind: ice.StructType) -> pa.Array:
    kept = {each.name: each.field_type for each in kind.fields}
    arrays, fields = list[pa.Array](), list[pa.Field]()
    changed = False
    for number in range(array.type.num_fields):
        field = array.type.field(number)
        if field.name not in kept:
            changed = True
            continue
        child = array.field(number)
        narrow = _narrow(child, kept[field.name])
        changed |= narrow.type != child.type
        arrays.append(narrow)
        fields.append(field.with_type(narrow.type))
    if not changed:
        return array
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null() if array.null_count else None)
