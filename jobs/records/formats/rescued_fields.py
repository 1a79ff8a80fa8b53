"""Rescued data of records with a writer schema: the fields without a column, as JSON in the shape of their record.

Their JSON (`jobs.records.formats.json_texts`) is readable by the JSON decoders, so that a rescued field can become a
column.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from jobs.records.formats.conform_place import own_offsets
from jobs.records.formats.conform_plan import (
    ColumnPlan,
    ListPlan,
    MapPlan,
    Node,
    StructPlan,
)
from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec, rows_of
from jobs.records.formats.json_texts import (
    Texts,
    array_text,
    json_texts,
    key_texts,
    object_text,
    objects,
    parts,
)
from jobs.records.schema.iceberg_schema import JsonText, iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.records.schema.rescued_data import with_extra_column, without_extra_column


def conformed_rows(spec: DecoderSpec) -> Schema:
    """Return the columns that a decoder of writer schemas gives, with the one for rescued fields, if the stream has it.

    Columns that are declared as `json` have the type `JsonText`.
    """
    match spec.schema:
        case DeclaredSchema(text):
            rows = iceberg_schema(parse_schema(text), JsonText)
        case _:
            rows = rows_of(spec)
    if spec.options.get("unknown_fields") != "keep":
        return rows
    return with_extra_column(rows) if spec.options.get("extra_column", True) else without_extra_column(rows)


def rescued_fields(plan: StructPlan, rows: pa.RecordBatch) -> list[str | None]:
    """Return each row's fields without a column, as a canonical JSON object; None without any.

    Args:
        plan: Plan of the writer schema's fields and the columns.
        rows: Rows from a decoder of the writer schema.
    """
    found = _of_struct(plan, rows.columns, rows.num_rows)
    return [None] * rows.num_rows if found is None else [each.decode() if each is not None else None for each in found]


def _of_struct(plan: StructPlan, values: Sequence[pa.Array], count: int) -> Texts | None:
    members = [(field.name, json_texts(values[index], field.field_type)) for index, field in plan.extra]
    for each in plan.columns:
        found: Texts | None = None
        for part in each.several or (each,):
            texts = None if part.index is None else _of(part.node, values[part.index])
            # A record has a value in only one of several fields for one column.
            found = (
                [one or other for one, other in zip(found, texts, strict=True)] if found and texts else found or texts
            )
        if found is not None:
            members.append((each.column.name, found))
    return objects(members, count) if members else None


def _of(node: Node, values: pa.Array) -> Texts | None:
    """Return the rescued JSON of each value; None if nothing ever is."""
    match node:
        case StructPlan():
            return _of_struct(node, values.flatten(), len(values))
        case ListPlan(ColumnPlan(node=inner)):
            offsets, start, end = own_offsets(values)
            found = _of(inner, values.values.slice(start, end - start))
            return found and [array_text(part) if any(part) else None for part in parts(found, offsets)]
        case MapPlan(ColumnPlan(column=key), ColumnPlan(node=inner)):
            offsets, start, end = own_offsets(values)
            found = _of(inner, values.items.slice(start, end - start))
            if found is None:
                return None
            keys = key_texts(values.keys.slice(start, end - start), key.field_type)
            return [
                object_text(zip(*each, strict=True))
                for each in zip(parts(keys, offsets), parts(found, offsets), strict=True)
            ]
        case _:
            return None
