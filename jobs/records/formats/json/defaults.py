"""Defaults of a writer schema, which replace null and missing keys if a stream asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from jobs.records.schema.arrow_schema import arrow_field, arrow_schema, arrow_type
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    StructType,
)

ELEMENT = "element"
VALUE = "value"


@dataclass(frozen=True, slots=True)
class Defaults:
    """The defaults of a struct, a list's elements or a map's values, with the defaults within.

    Attributes:
        values: Arrays of the one default, by the name of the field.
        inside: Defaults within fields, by the name of the field; ELEMENT for a list and VALUE for a map.
    """

    values: Mapping[str, pa.Array] = field(default_factory=dict)
    inside: Mapping[str, Defaults] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.values or self.inside)

    def optional(self, declared: StructType) -> StructType:
        """Return the fields as they are decoded: each field with a default accepts null."""
        return StructType(tuple(self._field(one) for one in declared.fields))

    def _field(self, one: Field) -> Field:
        return Field(one.name, self._type(one.name, one.type), one.required and one.name not in self.values)

    def _type(self, name: str, declared: DeclaredType) -> DeclaredType:
        inside = self.inside.get(name)
        if inside is None:
            return declared
        match declared:
            case StructType():
                return inside.optional(declared)
            case ListType(element, required):
                return ListType(inside._type(ELEMENT, element), required and ELEMENT not in inside.values)
            case MapType(key, value, required, carried):
                return MapType(key, inside._type(VALUE, value), required and VALUE not in inside.values, carried)
            case _:
                return declared

    def fill(self, rows: pa.RecordBatch, declared: StructType) -> pa.RecordBatch:
        """Return the rows with their defaults.

        Args:
            rows: Decoded rows.
            declared: The fields of the writer schema.
        """
        arrays = [
            self._filled(one.name, array, one.type) for one, array in zip(declared.fields, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(declared))

    def _filled(self, name: str, array: pa.Array, declared: DeclaredType) -> pa.Array:
        inside = self.inside.get(name)
        made = array if inside is None else inside._within(array, declared)
        default = self.values.get(name)
        if default is None or not made.null_count:
            return made
        take = np.where(np.asarray(made.is_null()), len(made), np.arange(len(made)))
        return pa.concat_arrays([made, default]).take(pa.array(take))

    def _within(self, array: pa.Array, declared: DeclaredType) -> pa.Array:
        null = array.is_null() if array.null_count else None
        match declared:
            case StructType(fields):
                parts = zip(fields, array.flatten(), strict=True)
                children = [self._filled(one.name, child, one.type) for one, child in parts]
                return pa.StructArray.from_arrays(children, fields=[arrow_field(one) for one in fields], mask=null)
            case ListType(element):
                offsets, first, last = _offsets(array)
                elements = self._filled(ELEMENT, array.values.slice(first, last - first), element)
                return pa.ListArray.from_arrays(offsets, elements, type=arrow_type(declared), mask=null)
            case MapType(_, value):
                offsets, first, last = _offsets(array)
                items = self._filled(VALUE, array.items.slice(first, last - first), value)
                keys = array.keys.slice(first, last - first)
                return pa.MapArray.from_arrays(offsets, keys, items, type=arrow_type(declared), mask=null)
            case _:
                return array


def _offsets(array: pa.ListArray | pa.MapArray) -> tuple[pa.Array, int, int]:
    """Return the offsets from 0 on, and where the elements begin and end."""
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    return pa.array((offsets - offsets[0]).astype(np.int32)), int(offsets[0]), int(offsets[-1])
