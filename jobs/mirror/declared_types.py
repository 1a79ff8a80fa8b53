"""Declared types: values of Arrow under a type that says otherwise which of its parts may be null.

Spark makes a struct's field optional where rows from elsewhere are added in which it is. A task has to give the type
that was declared all the same. Arrow casts no such field back, even if it holds no null, but the bytes are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class _Shown:
    """An array that shows itself under another type, by Arrow's protocol of C data."""

    array: pa.Array
    kind: pa.DataType

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[Any, Any]:
        _, data = self.array.__arrow_c_array__()
        return self.kind.__arrow_c_schema__(), data


def as_declared(values: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Values under a type; as they are where it says something else than which of its parts may be null.

    Args:
        kind: Parts of it that may not be null are null only where what they are parts of is.
    """
    if values.type == kind or _optional(values.type) != _optional(kind):
        return values
    return pa.chunked_array([pa.array(_Shown(chunk, kind)) for chunk in values.chunks], kind)


def _optional(kind: pa.DataType) -> pa.DataType:
    """The type with all its parts optional, and without the names of lists' and maps' parts."""
    if isinstance(kind, pa.StructType):
        return pa.struct([pa.field(each.name, _optional(each.type)) for each in kind])
    if isinstance(kind, pa.ListType):
        return pa.list_(_optional(kind.value_type))
    if isinstance(kind, pa.MapType):
        return pa.map_(_optional(kind.key_type), _optional(kind.item_type))
    return kind
