"""Iceberg schema of a declared record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids, index_by_id
from pyiceberg.types import TimeType

from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
    quoted,
)


class JsonText(ice.StringType):
    """A string whose text is JSON. It equals any other string; only conversions of values to columns distinguish it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ice.StringType)

    def __hash__(self) -> int:
        return hash(ice.StringType())


class Presence(ice.BooleanType):
    """A boolean that is true for a message without fields, if it exists. It equals any other boolean."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ice.BooleanType)

    def __hash__(self) -> int:
        return hash(ice.BooleanType())


_ICEBERG: dict[str, ice.PrimitiveType] = {
    "boolean": ice.BooleanType(),
    "int": ice.IntegerType(),
    "long": ice.LongType(),
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "date": ice.DateType(),
    "timestamp": ice.TimestampType(),
    "timestamptz": ice.TimestamptzType(),
    "time": ice.TimeType(),
    "string": ice.StringType(),
    "uuid": ice.UUIDType(),
    "binary": ice.BinaryType(),
}


def iceberg_schema(declared: StructType, json: type[ice.StringType] = ice.StringType) -> Schema:
    """Return the schema of a declared record's rows, with fresh field ids.

    Args:
        declared: The record.
        json: The type of texts that are JSON.
    """
    # These ids only have to differ: assign_fresh_schema_ids numbers them as a catalog would.
    ids = iter(range(1, 1_000_000))
    return assign_fresh_schema_ids(Schema(*(_iceberg_field(field, ids, json) for field in declared.fields)))


def _iceberg_field(field: Field, ids: Iterator[int], json: type[ice.StringType]) -> ice.NestedField:
    return ice.NestedField(next(ids), field.name, _iceberg_type(field.type, ids, json), required=field.required)


def _iceberg_type(declared: DeclaredType, ids: Iterator[int], json: type[ice.StringType]) -> ice.IcebergType:
    match declared:
        case Primitive("json") | Primitive("string", encoding="json"):
            return json()
        case Primitive("decimal", int() as precision, int() as scale):
            return ice.DecimalType(precision, scale)
        case Primitive("fixed", length=int() as length):
            return ice.FixedType(length)
        case Primitive(name):
            return _ICEBERG[name]
        case StructType(fields):
            return ice.StructType(*[_iceberg_field(field, ids, json) for field in fields])
        case ListType(element, required):
            return ice.ListType(next(ids), _iceberg_type(element, ids, json), element_required=required)
        case MapType(key, value, required):
            key_id, key_type, value_id = next(ids), _iceberg_type(key, ids, json), next(ids)
            return ice.MapType(key_id, key_type, value_id, _iceberg_type(value, ids, json), value_required=required)


def schema_text(kind: ice.IcebergType) -> str:
    """Return a type in the words of schema text."""
    match kind:
        case ice.StructType():
            return f"struct<{', '.join(f'{quoted(each.name)} {with_null(each)}' for each in kind.fields)}>"
        case ice.ListType():
            return f"list<{with_null(kind.element_field)}>"
        case ice.MapType():
            return f"map<{schema_text(kind.key_type)}, {with_null(kind.value_field)}>"
        case ice.FixedType():
            return f"fixed({len(kind)})"
        case _:
            return str(kind).replace(", ", ",")


def with_null(field: ice.NestedField) -> str:
    """Return a field's type in the words of schema text, with `not null` if it is required."""
    return f"{schema_text(field.field_type)}{' not null' if field.required else ''}"


def column_text(kind: ice.IcebergType) -> str:
    """Return a type as the JSON of an optional column that has it, for documents; `column_type` is the inverse."""
    return ice.NestedField(0, "c", kind, required=False).model_dump_json()


def column_type(text: str) -> ice.IcebergType:
    """Return the type that `column_text` wrote."""
    return ice.NestedField.model_validate_json(text).field_type


def fresh_schema(fields: Iterable[ice.NestedField]) -> Schema:
    """Return the schema of fields with arbitrary ids, with fresh ids."""
    return assign_fresh_schema_ids(Schema(*numbered(fields)))


def numbered(fields: Iterable[ice.NestedField]) -> Iterator[ice.NestedField]:
    """Yield the fields with other ids, which have to differ until a catalog numbers them."""
    ids = iter(range(1, 1_000_000))
    for field in fields:
        kind = _renumbered(field.field_type, ids)
        yield ice.NestedField(next(ids), field.name, kind, required=field.required, doc=field.doc)


def _renumbered(kind: ice.IcebergType, ids: Iterator[int]) -> ice.IcebergType:
    match kind:
        case ice.StructType():
            return ice.StructType(
                *(
                    ice.NestedField(next(ids), each.name, _renumbered(each.field_type, ids), each.required, each.doc)
                    for each in kind.fields
                )
            )
        case ice.ListType():
            element = _renumbered(kind.element_type, ids)
            return ice.ListType(next(ids), element, element_required=kind.element_required)
        case ice.MapType():
            key, value = _renumbered(kind.key_type, ids), _renumbered(kind.value_type, ids)
            return ice.MapType(next(ids), key, next(ids), value, value_required=kind.value_required)
        case _:
            return kind


def unread_by_spark(schema: Schema) -> list[str]:
    """Return full names of columns, also nested ones, because of which Spark 4.1 (Iceberg 1.12) refuses a table."""
    times = [field_id for field_id, field in index_by_id(schema).items() if isinstance(field.field_type, TimeType)]
    return [schema.find_column_name(field_id) or str(field_id) for field_id in times]


def unread_problem(schema: Schema) -> str | None:
    """Return why a table of this schema cannot be maintained, and what to write instead; None if it can."""
    if not (columns := unread_by_spark(schema)):
        return None
    return (
        f"Spark reads and compacts no table with a column of the type time ({', '.join(columns)}): declare it as int, "
        "long or string, or set maintenance.enabled: false for the stream and keep the table in order by other means"
    )


def type_at(schema: Schema, path: Sequence[str]) -> ice.IcebergType | None:
    """Return the type of a column, or of a field within structs, by its names from the top; None if there is none."""
    found: ice.IcebergType | None = schema.as_struct()
    for name in path:
        fields = found.fields if isinstance(found, ice.StructType) else ()
        found = next((field.field_type for field in fields if field.name == name), None)
    return found
