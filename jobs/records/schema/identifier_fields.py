"""Identifier fields: the columns that identify a table's rows, as Iceberg allows them."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Collection, Iterable

from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.schema.needs import Path


def identifier_problem(path: Path, rows: Schema) -> str | None:
    """Return why a column cannot be an identifier field; None if it can.

    Iceberg requires a single value that always exists and can be compared: required, in required structs, neither in a
    list nor in a map, no float and no double.
    """
    kind: ice.IcebergType = rows.as_struct()
    for depth, name in enumerate(path):
        above = ".".join(path[:depth])
        if not isinstance(kind, ice.StructType):
            return f"'{above}' has no columns within it that could identify a row: it is no struct"
        column = next((each for each in kind.fields if each.name == name), None)
        if column is None:
            near = difflib.get_close_matches(name, [each.name for each in kind.fields], 1)
            hint = f"; did you mean '{'.'.join((*path[:depth], near[0]))}'?" if near else ""
            return f"the stream has no column '{'.'.join(path[: depth + 1])}'{hint}"
        if not column.required:
            return (
                f"'{'.'.join(path[: depth + 1])}' may be null, and an identifier is always there: it needs 'not null'"
            )
        kind = column.field_type
    if not kind.is_primitive:
        return f"'{'.'.join(path)}' is no single value"
    if isinstance(kind, ice.FloatType | ice.DoubleType):
        return f"'{'.'.join(path)}' is a {kind}, and Iceberg identifies no row by one"
    return None


def identifier_names(schema: Schema) -> list[str]:
    """Return the identifier fields of a table, by their full names, in order."""
    return sorted(schema.find_column_name(each) or "" for each in schema.identifier_field_ids)


def with_identifier_fields(schema: Schema, names: Iterable[str]) -> Schema:
    """Return the schema with these identifier fields, by their full names, and no others."""
    ids = [schema.find_field(name).field_id for name in names]
    return Schema(*schema.fields, schema_id=schema.schema_id, identifier_field_ids=ids)


def required_columns(schema: Schema, paths: Collection[Path]) -> Schema:
    """Return the columns with those at some paths, and the structs around them, required; unknown paths are ignored."""
    wanted = {path[: depth + 1] for path in paths for depth in range(len(path))}
    fields = _required(schema.as_struct(), (), wanted)
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _required(struct: ice.StructType, at: Path, wanted: Collection[Path]) -> list[ice.NestedField]:
    made: list[ice.NestedField] = []
    for each in struct.fields:
        path, kind = (*at, each.name), each.field_type
        if path in wanted:
            inner = ice.StructType(*_required(kind, path, wanted)) if isinstance(kind, ice.StructType) else kind
            each = each.model_copy(update={"required": True, "field_type": inner})
        made.append(each)
    return made


def optional_columns(schema: Schema, besides: Collection[Path]) -> Schema:
    """Return the columns, all of them optional, elements of lists and values of maps too.

    Args:
        schema: Schema of the columns, whose ids stay.
        besides: Paths of columns that stay as they are, with the structs around them.
    """
    kept = set(itertools.chain.from_iterable((path[: n + 1] for n in range(len(path))) for path in besides))
    fields = _optional(schema.as_struct(), (), kept)
    return Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)


def _optional(struct: ice.StructType, at: Path, kept: Collection[Path]) -> list[ice.NestedField]:
    return [
        each.model_copy(
            update={
                "required": each.required and (*at, each.name) in kept,
                "field_type": _optional_type(each.field_type, (*at, each.name), kept),
            }
        )
        for each in struct.fields
    ]


def _optional_type(kind: ice.IcebergType, at: Path, kept: Collection[Path]) -> ice.IcebergType:
    match kind:
        case ice.StructType():
            return ice.StructType(*_optional(kind, at, kept))
        case ice.ListType():
            element = _optional_type(kind.element_type, (*at, "element"), kept)
            return ice.ListType(kind.element_id, element, element_required=False)
        case ice.MapType():
            value = _optional_type(kind.value_type, (*at, "value"), kept)
            return ice.MapType(kind.key_id, kind.key_type, kind.value_id, value, value_required=False)
        case _:
            return kind
