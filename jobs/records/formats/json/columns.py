"""Columns of decoded JSON records in Arrow, nested ones too, with each refused value traced back to its record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.records.formats.columns.primitive_columns import convert_leaf
from jobs.records.formats.interface.problems import WRONG_TYPE, ValueProblem, shown_key
from jobs.records.formats.json.keys import (
    MAX_DEPTH,
    ExtraKeys,
    entries_of,
    extra_getter,
    getter,
)
from jobs.records.schema.arrow_schema import arrow_field, arrow_schema, arrow_type
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)

Indices = npt.NDArray[np.int64]

LONG_TOKEN = MAX_DEPTH
"""Length in bytes; a shorter token is nested half as deep at most, so its record is not deeper than MAX_DEPTH."""


@dataclass(slots=True)
class _Place:
    """The origin of one column's values: their records, the JSON path of a single one, and of all of them."""

    records: Indices
    path: Callable[[int], str]
    paths: str


@dataclass(slots=True)
class Columns:
    """The columns of a block of records, one row per record.

    Attributes:
        rows: A record with a refused value still has its row here.
        refused: The first refused value of each such record, by the record's index.
        extra: For each key that is not declared (JSON path), the records that carry it, ascending.
        long_tokens: Records that carry such a key, or a value of the type json, with more than LONG_TOKEN bytes.
    """

    rows: pa.RecordBatch
    refused: dict[int, ValueProblem]
    extra: dict[str, Indices]
    long_tokens: set[int]


def build_columns(declared: StructType, records: Sequence[Any], extras: ExtraKeys) -> Columns:
    """Build the columns of decoded records (jobs.records.formats.json.keys).

    Args:
        declared: The record's declared type.
        records: Instances of the declared struct's class.
        extras: The extra keys of that class.
    """
    builder = _Builder(extras)
    place = _Place(np.arange(len(records), dtype=np.int64), lambda _: "$", "$")
    schema = arrow_schema(declared)
    arrays = builder.children(declared, records, place)
    # A refused value of a required column is null until its row is dropped.
    relaxed = pa.schema([one.with_nullable(True) for one in schema]) if builder.refused else schema
    rows = pa.RecordBatch.from_arrays(arrays, schema=relaxed)
    return Columns(rows, builder.refused, builder.extra, builder.long_tokens)


class _Builder:
    def __init__(self, extras: ExtraKeys) -> None:
        self.extras = extras
        self.refused: dict[int, ValueProblem] = {}
        self.extra: dict[str, Indices] = {}
        self.long_tokens: set[int] = set()

    def column(self, declared: DeclaredType, required: bool, values: Sequence[Any], place: _Place) -> pa.Array:
        match declared:
            case Primitive():
                if declared.name == "json":
                    lengths = np.fromiter(map(len, values), np.int64, len(values))
                    self.long_tokens.update(place.records[lengths > LONG_TOKEN].tolist())
                array, bad = convert_leaf(declared, values, required=required)
                for one in bad:
                    problem = ValueProblem(one.error_class, one.message, place.path(one.index))
                    self.refused.setdefault(int(place.records[one.index]), problem)
                return array
            case StructType():
                return self.struct(declared, values, place)
            case ListType(element, element_required):
                mask, offsets, owners = _spread(values)
                flat = list(chain.from_iterable(value for value in values if value))
                inside = _Place(
                    place.records[owners],
                    lambda i: f"{place.path(int(owners[i]))}[{i - int(offsets[owners[i]])}]",
                    place.paths + "[]",
                )
                elements = self.column(element, element_required, flat, inside)
                return pa.ListArray.from_arrays(pa.array(offsets), elements, type=arrow_type(declared), mask=mask)
            case MapType(carried="pairs" | "entries"):
                return self.array_map(declared, values, place)
            case MapType(_, value_type, value_required):
                mask, offsets, owners = _spread(values)
                keys = list(chain.from_iterable(value for value in values if value))
                flat = list(chain.from_iterable(value.values() for value in values if value))
                # As in msgspec's own paths, the key is not shown.
                inside = _Place(
                    place.records[owners], lambda i: f"{place.path(int(owners[i]))}[...]", place.paths + "{}"
                )
                items = self.column(value_type, value_required, flat, inside)
                return pa.MapArray.from_arrays(
                    pa.array(offsets), pa.array(keys, pa.string()), items, type=arrow_type(declared), mask=mask
                )

    def array_map(self, declared: MapType, values: Sequence[Any], place: _Place) -> pa.Array:
        """Build a map from an array of entries, in which a key may come twice: then its value is ambiguous."""
        mask, offsets, owners = _spread(values)
        flat = list(chain.from_iterable(value for value in values if value))
        records = place.records[owners]
        path = lambda i: f"{place.path(int(owners[i]))}[{i - int(offsets[owners[i]])}]"  # noqa: E731
        if declared.carried == "entries":
            inside = _Place(records, path, place.paths + "[]")
            keys, items = self.column(entries_of(declared).element, True, flat, inside).flatten()
        else:
            of_key = _Place(records, lambda i: f"{path(i)}[0]", place.paths)
            of_value = _Place(records, lambda i: f"{path(i)}[1]", place.paths + "{}")
            keys = self.column(declared.key, True, [key for key, _ in flat], of_key)
            items = self.column(declared.value, declared.value_required, [one for _, one in flat], of_value)
        seen: set[tuple[int, Any]] = set()
        for index, key in enumerate(zip(owners.tolist(), keys.to_pylist(), strict=True)):
            if key in seen:
                problem = ValueProblem(WRONG_TYPE, "needs a map in which no key comes twice, found one", path(index))
                self.refused.setdefault(int(records[index]), problem)
            seen.add(key)
        if keys.null_count:
            # The key was refused; its row is dropped.
            keys = keys.fill_null(_empty(Field("key", declared.key))[0])
        return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=arrow_type(declared), mask=mask)

    def children(self, declared: StructType, values: Sequence[Any], place: _Place) -> list[pa.Array]:
        for index, key in enumerate(self.extras.get(place.paths, ())):
            lengths = np.fromiter(map(len, map(extra_getter(index), values)), np.int64, len(values))
            self.extra[f"{place.paths}.{shown_key(key)}"] = np.unique(place.records[lengths > 0])
            self.long_tokens.update(place.records[lengths > LONG_TOKEN].tolist())
        return [self.child(index, one, values, place) for index, one in enumerate(declared.fields)]

    def child(self, index: int, one: Field, values: Sequence[Any], place: _Place) -> pa.Array:
        inside = _Place(place.records, lambda i: f"{place.path(i)}.{one.name}", f"{place.paths}.{one.name}")
        return self.column(one.type, one.required, list(map(getter(index), values)), inside)

    def struct(self, declared: StructType, values: Sequence[Any], place: _Place) -> pa.Array:
        fields = [arrow_field(one) for one in declared.fields]
        present = np.fromiter((value is not None for value in values), np.bool_, len(values))
        if present.all():
            return pa.StructArray.from_arrays(self.children(declared, values, place), fields=fields)
        where = np.flatnonzero(present)
        inside = _Place(place.records[where], lambda i: place.path(int(where[i])), place.paths)
        compact = self.children(declared, [value for value in values if value is not None], inside)
        take = np.where(present, np.cumsum(present) - 1, -1)
        return spread_struct(declared.fields, compact, present, take)


def spread_struct(
    fields: Sequence[Field], compact: Sequence[pa.Array], present: npt.NDArray[np.bool_], take: Indices
) -> pa.StructArray:
    """Build a struct column from the fields of those rows that are not null.

    Args:
        fields: The fields of the compact arrays.
        compact: One array for each field.
        present: Mask of the rows that are not null.
        take: For each such row, its index in the compact arrays.
    """
    # Under a null struct even a required child needs a value: the empty one, put at the end.
    places = pa.array(np.where(present, take, len(compact[0]) if compact else 0))
    arrays = [pa.concat_arrays([array, _empty(one)]).take(places) for array, one in zip(compact, fields, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=[arrow_field(one) for one in fields], mask=pa.array(~present))


def _spread(values: Sequence[Any]) -> tuple[pa.BooleanArray | None, npt.NDArray[np.int32], Indices]:
    """Return the null mask, the offsets, and for each inner value the index of the outer one it belongs to."""
    lengths = np.fromiter((-1 if value is None else len(value) for value in values), np.int64, len(values))
    null = lengths < 0
    lengths[null] = 0
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    owners = np.repeat(np.arange(len(values), dtype=np.int64), lengths)
    return (pa.array(null) if null.any() else None), offsets, owners


def _empty(declared: Field) -> pa.Array:
    child = pa.field(declared.name, arrow_type(declared.type), nullable=False)
    return pa.array([None], pa.struct([child])).field(0)
