"""Schema of Avro records: the columns that the nodes of a writer schema become.

A record becomes a struct, a union of null and one type an optional column of it, a union of several types a struct with
an optional field for each. What is always null has no column.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from jobs.formats.avro.nodes import Array, Branch, Enum, FieldNode, Fixed, Map, Node, Null, Plain, Record, Union
from jobs.formats.avro.options import AvroOptions
from jobs.formats.avro.parsed_schema import parsed_schema
from jobs.formats.writer_schema import BadWriterSchema, WriterSchema
from jobs.schema.parser import MAX_NESTING

MOST_COLUMNS = 10_000
"""Columns of a writer schema, nested ones too: types that are used again and again could become any number."""

VALUE = "value"
"""The column of a schema that is no record."""

_PLAIN: dict[str, ice.PrimitiveType] = {
    "boolean": ice.BooleanType(),
    "int": ice.IntegerType(),
    "long": ice.LongType(),
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "bytes": ice.BinaryType(),
    "string": ice.StringType(),
}


def top_node(schema: WriterSchema, options: AvroOptions) -> Node:
    """The nodes of a writer schema; it can be read, and its records have columns.

    Raises:
        BadWriterSchema: It cannot, or they have not.
    """
    node = parsed_schema(schema, options)
    _check(node, "$", 0, iter(range(MOST_COLUMNS)))
    if not top_fields(node):
        raise BadWriterSchema("records without a field that can be other than null")
    return node


def avro_schema(node: Node) -> Schema:
    """The columns of records of a writer schema."""
    ids = iter(range(1, 10 * MOST_COLUMNS))
    fields = [_field(each, ids) for each in top_fields(node)]
    return assign_fresh_schema_ids(Schema(*fields))


def top_fields(node: Node) -> tuple[FieldNode | Branch, ...]:
    """What the columns are of: the fields of a record, the types of a union of several, or else the value itself."""
    match node:
        case _ if not is_struct(node):
            return columns((FieldNode(VALUE, node),))
        case Record(_, fields) | Union(only=Record(_, fields)):
            return columns(fields)
        case Union():
            return node.filled
        case _:
            raise AssertionError("only records and unions are structs")


def is_struct(node: Node) -> bool:
    """Whether the columns are of a value's own fields, and not of the value as a whole."""
    match node:
        case Record(scaled=None):
            return True
        case Union(only=Record(scaled=None)):
            return len(node.branches) == 1
        case Union(only=None):
            return bool(node.filled) and not node.nullable
        case _:
            return False


def columns(fields: tuple[FieldNode, ...]) -> tuple[FieldNode, ...]:
    """The fields that have a column."""
    return tuple(each for each in fields if not is_null(each.node))


def is_null(node: Node) -> bool:
    """Whether all values are null."""
    return isinstance(node, Null) or (isinstance(node, Union) and not node.filled)


def optional(node: Node) -> bool:
    """Whether a value may be null."""
    return isinstance(node, Union) and node.nullable


def _leaf(node: Plain | Fixed) -> ice.PrimitiveType:
    if node.logical is not None:
        return node.logical.type
    return _PLAIN[node.name] if isinstance(node, Plain) else ice.FixedType(node.size)


def _field(field: FieldNode | Branch, ids: Iterator[int]) -> ice.NestedField:
    required = isinstance(field, FieldNode) and not optional(field.node)
    return ice.NestedField(next(ids), field.name, _type(field.node, ids), required=required)


def _type(node: Node, ids: Iterator[int]) -> ice.IcebergType:
    match node:
        case Plain() | Fixed():
            return _leaf(node)
        case Enum():
            return ice.StringType()
        case Array(items):
            return ice.ListType(next(ids), _type(items, ids), element_required=not optional(items))
        case Map(values):
            return ice.MapType(
                next(ids), ice.StringType(), next(ids), _type(values, ids), value_required=not optional(values)
            )
        case Union(only=only):
            return ice.StructType(*(_field(each, ids) for each in node.filled)) if only is None else _type(only, ids)
        case Record(scaled=scaled):
            return scaled or ice.StructType(*(_field(each, ids) for each in columns(node.fields)))
        case Null():
            raise AssertionError("null has no type")


def _check(node: Node, path: str, depth: int, room: Iterator[int]) -> None:
    """Raises for what no column holds, and for what would become too many."""
    if next(room, None) is None:
        raise BadWriterSchema(f"more than {MOST_COLUMNS:,} columns")
    if depth > MAX_NESTING:
        raise BadWriterSchema(f"types nested more than {MAX_NESTING} deep, at {path}")
    match node:
        case Record(name, fields):
            if not columns(fields) and path != "$":
                raise BadWriterSchema(f"the record {name!r} at {path} has no field that can be other than null")
            for each in fields:
                _check(each.node, f"{path}.{each.name}", depth + 1, room)
        case Union(branches, only):
            for each in branches:
                _check(each.node, path if only else f"{path}.{each.name}", depth + (only is None), room)
        case Array(inner) | Map(inner):
            at = f"{path}[]" if isinstance(node, Array) else f"{path}{{}}"
            if is_null(inner):
                raise BadWriterSchema(f"a list or a map of nothing but nulls, at {path}")
            _check(inner, at, depth + 1, room)
        case _:
            pass
