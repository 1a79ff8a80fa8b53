"""Inference from Connect's JSON: the columns of records that carry their schema, and what each column held.

The schemas give the columns; the payloads, decoded by them, show their values.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.connect_json.payloads import NO_SCHEMA, Envelope, read_envelope
from jobs.records.formats.connect_json.schema import connect_types
from jobs.records.formats.interface.problems import ValueProblem
from jobs.records.formats.interface.writer_schema import BadWriterSchema
from jobs.records.formats.json.seen_values import MOST_EXAMPLES, Place
from jobs.records.formats.json.writer_decoder import JsonWriterDecoder
from jobs.records.schema.compatibility import promotes
from jobs.records.schema.iceberg_schema import iceberg_schema

MOST_SCHEMAS = 100
"""Limit of different schemas that are looked at; records of further ones are only counted."""


@dataclass(slots=True)
class SeenSchema:
    """A schema that records carried.

    Attributes:
        name: Its name and version; empty if it has neither.
        first: The first record with it.
        rows: Its columns; None if it cannot be read.
        problem: Why it cannot be read.
        count: Number of records with it.
    """

    name: str
    first: Place
    rows: Schema | None = None
    problem: str = ""
    count: int = 0
    decoder: JsonWriterDecoder | None = None


@dataclass(slots=True)
class SeenColumn:
    """What a column held.

    Attributes:
        there: Number of records that had it.
        nulls: Number of those in which it was null.
        least, most: Bounds of numbers, days and times; of texts and bytes the bounds of their lengths.
        first: The first record in which it was not null.
        examples: Some values, if values are kept.
    """

    there: int = 0
    nulls: int = 0
    least: Any = None
    most: Any = None
    first: Place | None = None
    examples: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column that holds the values that schemas give for a field.

    Attributes:
        field: The column; required if every schema has it and requires it.
        schemas: Number of schemas that have it.
        others: Indexes of the schemas whose values it does not hold.
    """

    field: ice.NestedField
    schemas: int
    others: tuple[int, ...]


class SeenEnvelopes:
    """Statistics of records in envelopes.

    Args:
        keep_examples: Whether values are kept.
        as_sent: Names of logical types whose values stay texts, numbers or bytes.

    Attributes:
        count: Number of records that could be read.
        schemas: Schemas by their text, in the order in which they came.
        columns: Columns by name.
        failures: Number of records that could not be read, by the class of their failure.
        first_failure: The first of them.
        plain: Number of records whose schema is null.
        more_schemas: Number of records of schemas beyond `MOST_SCHEMAS`.
    """

    def __init__(self, *, keep_examples: bool = False, as_sent: Collection[str] = ()) -> None:
        self._keep_examples: bool = keep_examples
        self._as_sent: Collection[str] = as_sent
        self.count: int = 0
        self.schemas: dict[bytes, SeenSchema] = {}
        self.columns: dict[str, SeenColumn] = {}
        self.failures: Counter[str] = Counter()
        self.first_failure: Place | None = None
        self.plain: int = 0
        self.more_schemas: int = 0

    def add(self, records: Sequence[tuple[Place, bytes]]) -> None:
        """Add records to the statistics."""
        groups: dict[bytes, list[tuple[Place, bytes]]] = {}
        for place, value in records:
            try:
                envelope = read_envelope(value)
            except ValueProblem as problem:
                self._fail(problem.error_class, place)
                continue
            if envelope.schema == NO_SCHEMA:
                self.plain += 1
            elif envelope.schema not in self.schemas and len(self.schemas) >= MOST_SCHEMAS:
                self.more_schemas += 1
            else:
                groups.setdefault(envelope.schema, []).append((place, envelope.payload))
        for schema, payloads in groups.items():
            seen = self.schemas.get(schema) or self._met(schema, payloads[0][0])
            seen.count += len(payloads)
            if seen.decoder is not None:
                self._look(seen.decoder, payloads)

    def merged(self) -> list[tuple[MergedColumn, list[SeenSchema]]]:
        """Return the columns of all schemas, the newest schema's first, each with the schemas that it does not hold."""
        read = [(each, each.rows) for each in reversed(self.schemas.values()) if each.rows is not None]
        merged = merged_columns([rows for _, rows in read], [each.count for each, _ in read])
        return [(each, [read[index][0] for index in each.others]) for each in merged]

    def _met(self, schema: bytes, place: Place) -> SeenSchema:
        seen = self.schemas[schema] = SeenSchema(_name(schema), place)
        try:
            types = connect_types(schema.decode(), as_sent=self._as_sent)
            seen.decoder = JsonWriterDecoder(types, block=True)
            seen.rows = iceberg_schema(types.declared)
        except BadWriterSchema as problem:
            seen.problem = problem.message
        return seen

    def _look(self, decoder: JsonWriterDecoder, payloads: Sequence[tuple[Place, bytes]]) -> None:
        decoded = decoder.decode(pa.array([payload for _, payload in payloads], pa.binary()))
        for failure in decoded.failures:
            self._fail(failure.error_class, payloads[failure.row][0])
        self.count += decoded.rows.num_rows
        for name, values in zip(decoded.rows.schema.names, decoded.rows.columns, strict=True):
            seen = self.columns.setdefault(name, SeenColumn())
            seen.there += len(values)
            seen.nulls += values.null_count
            there = np.flatnonzero(np.asarray(values.is_valid()))
            if not len(there):
                continue
            if seen.first is None:
                seen.first = payloads[int(decoded.positions[there[0]])][0]
            self._range(seen, values)
            if self._keep_examples:
                for index in there[: MOST_EXAMPLES + len(seen.examples)].tolist():
                    value = values[index].as_py()
                    if value not in seen.examples and len(seen.examples) < MOST_EXAMPLES:
                        seen.examples.append(value)

    def _range(self, seen: SeenColumn, values: pa.Array) -> None:
        kind = values.type
        if pa.types.is_string(kind):
            values = pc.utf8_length(values)
        elif pa.types.is_binary(kind):
            values = pc.binary_length(values)
        elif pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_fixed_size_binary(kind):
            return
        ends = pc.min_max(values).as_py()
        if seen.least is None:
            seen.least, seen.most = ends["min"], ends["max"]
        elif type(seen.least) is type(ends["min"]):
            seen.least, seen.most = min(seen.least, ends["min"]), max(seen.most, ends["max"])

    def _fail(self, error_class: str, place: Place) -> None:
        self.failures[error_class] += 1
        self.first_failure = self.first_failure or place


def is_enveloped(value: bytes) -> bool:
    """Return whether a value is an envelope whose schema is one of Connect's."""
    try:
        envelope: Envelope = read_envelope(value)
        connect_types(envelope.schema.decode())
    except (ValueProblem, BadWriterSchema):
        return False
    return True


def merged_columns(schemas: Sequence[Schema], counts: Sequence[int]) -> list[MergedColumn]:
    """Return columns for the fields of schemas, those of the first schema first.

    If no type holds all values of a field, or its name differs by case, the column is that of most records; with equal
    numbers of records, that of the first schema.

    Args:
        schemas: Schemas that records carry.
        counts: Number of records with each schema.
    """
    candidates: dict[str, list[tuple[ice.NestedField, list[int]]]] = {
        each.name.casefold(): [] for schema in schemas for each in schema.fields
    }
    for index in sorted(range(len(schemas)), key=lambda index: -counts[index]):
        for column in schemas[index].fields:
            _join(candidates[column.name.casefold()], column, index)
    return [_chosen(each, counts, len(schemas)) for each in candidates.values()]


def _join(candidates: list[tuple[ice.NestedField, list[int]]], column: ice.NestedField, index: int) -> None:
    """Add a schema's column to the first candidate that can take it, or as another candidate."""
    for number, (known, indexes) in enumerate(candidates):
        kind = merged_type(known.field_type, column.field_type) if known.name == column.name else None
        if kind is not None:
            required = known.required and column.required
            wider = known.model_copy(update={"field_type": kind, "required": required})
            candidates[number] = wider, [*indexes, index]
            return
    candidates.append((column, [index]))


def _chosen(
    candidates: Sequence[tuple[ice.NestedField, list[int]]], counts: Sequence[int], schemas: int
) -> MergedColumn:
    column, held = max(candidates, key=lambda each: sum(counts[index] for index in each[1]))
    named = [each for each in candidates if each[0].name == column.name]
    others = tuple(index for _, indexes in named if indexes is not held for index in indexes)
    total = len(held) + len(others)
    required = total == schemas and all(each.required for each, _ in named)
    return MergedColumn(column.model_copy(update={"required": required}), total, others)


def merged_type(one: ice.IcebergType, other: ice.IcebergType) -> ice.IcebergType | None:
    """Return the narrowest type that holds the values of two types; None if none does.

    Structs get the fields of both, except fields of the other whose name differs only by case; fields that one of them
    lacks, or does not require, are optional.
    """
    match one, other:
        case ice.StructType(), ice.StructType():
            return _merged_struct(one, other)
        case ice.ListType(), ice.ListType():
            element = merged_type(one.element_type, other.element_type)
            required = one.element_required and other.element_required
            return None if element is None else ice.ListType(one.element_id, element, element_required=required)
        case ice.MapType(), ice.MapType() if one.key_type == other.key_type:
            value = merged_type(one.value_type, other.value_type)
            required = one.value_required and other.value_required
            if value is None:
                return None
            return ice.MapType(one.key_id, one.key_type, one.value_id, value, value_required=required)
        case ice.PrimitiveType(), ice.PrimitiveType():
            return other if promotes(one, other) else one if promotes(other, one) else None
        case _:
            return None


def _merged_struct(one: ice.StructType, other: ice.StructType) -> ice.StructType | None:
    by_name = {each.name: each for each in other.fields}
    fields: list[ice.NestedField] = []
    # A table has only one of several names that differ by case: here that of the struct which comes first.
    taken: set[str] = {each.name.casefold() for each in one.fields}
    for each in one.fields:
        match = by_name.pop(each.name, None)
        kind = each.field_type if match is None else merged_type(each.field_type, match.field_type)
        if kind is None:
            return None
        required = match is not None and each.required and match.required
        fields.append(ice.NestedField(each.field_id, each.name, kind, required=required))
    for each in by_name.values():
        if each.name.casefold() not in taken:
            taken.add(each.name.casefold())
            fields.append(ice.NestedField(each.field_id, each.name, each.field_type, required=False))
    return ice.StructType(*fields)


def _name(schema: bytes) -> str:
    found = json.loads(schema)
    if not isinstance(found, dict):
        return ""
    version = f"version {found['version']}" if isinstance(found.get("version"), int) else ""
    return " ".join(each for each in (str(found.get("name") or ""), version) if each)
