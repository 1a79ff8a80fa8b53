"""Schema of Avro records: the columns that the nodes of a writer schema become.

A record becomes a struct, a union of null and one type an optional column, and a union of several types a struct with
an optional field for each. A type that is always null has no column. Values that no column can hold, such as a record
within itself, become JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from jobs.records.formats.avro.nodes import (
    Array,
    Branch,
    Enum,
    FieldNode,
    Fixed,
    Json,
    Map,
    Node,
    Null,
    Plain,
    Record,
    Union,
    Within,
)
from jobs.records.formats.avro.options import AvroOptions
from jobs.records.formats.avro.parsed_schema import parsed_schema
from jobs.records.formats.interface.writer_schema import BadWriterSchema, WriterSchema
from jobs.records.schema.iceberg_schema import JsonText
from jobs.records.schema.parser import MAX_NESTING

MOST_COLUMNS = 10_000
"""Limit of columns of a writer schema, including nested ones: repeated use of types could create any number."""

T = TypeVar("T", FieldNode, Branch)

VALUE = "value"
"""Name of the column of a schema that is no record."""

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
    """Return the nodes of a writer schema.

    Raises:
        BadWriterSchema: The schema cannot be read, or its records have no columns.
    """
    parsed, records = parsed_schema(schema, options)
    node = _Holder(records).held(parsed, "$", 0)
    if not top_fields(node):
        raise BadWriterSchema("records without a field that can be other than null")
    return node


def avro_schema(node: Node) -> Schema:
    """Return the columns of a writer schema's records."""
    ids = iter(range(1, 10 * MOST_COLUMNS))
    fields = [_field(each, ids) for each in top_fields(node)]
    return assign_fresh_schema_ids(Schema(*fields))


def top_fields(node: Node) -> tuple[FieldNode | Branch, ...]:
    """Return what the columns are made of: fields of a record, types of a union of several, or the value itself."""
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
    """Whether the columns are fields of the value, and not the value as a whole."""
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
    """Return the fields that have a column."""
    return tuple(each for each in fields if not is_null(each.node))


def is_null(node: Node) -> bool:
    """Whether all values are null."""
    return isinstance(node, Null) or (isinstance(node, Union) and not node.filled)


def optional(node: Node) -> bool:
    """Whether a value may be null."""
    return optional(node.node) if isinstance(node, Json) else isinstance(node, Union) and node.nullable


def leaf_type(node: Plain | Fixed) -> ice.PrimitiveType:
    """Return Iceberg's type of values without parts."""
    if node.logical is not None:
        return node.logical.type
    if isinstance(node, Plain) and node.json:
        return JsonText()
    return _PLAIN[node.name] if isinstance(node, Plain) else ice.FixedType(node.size)


def _field(field: FieldNode | Branch, ids: Iterator[int]) -> ice.NestedField:
    required = isinstance(field, FieldNode) and not optional(field.node)
    return ice.NestedField(next(ids), field.name, _type(field.node, ids), required=required)


def _type(node: Node, ids: Iterator[int]) -> ice.IcebergType:
    match node:
        case Plain() | Fixed():
            return leaf_type(node)
        case Json():
            return JsonText()
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
        case Null() | Within():
            raise AssertionError("it has no type")


class _NoColumn(BadWriterSchema):
    """No column can hold a type."""


class _Holder:
    """Replaces types that no column can hold by JSON.

    Args:
        records: All records of the schema, by name.
    """

    def __init__(self, records: Mapping[str, Record]) -> None:
        self._records: Mapping[str, Record] = records
        self._names: dict[str, set[str]] = {}
        self._columns: int = 0
        self._within: tuple[Record, ...] = ()

    def held(self, node: Node, path: str, depth: int) -> Node:
        """Return a node that columns can hold.

        Raises:
            _NoColumn: No column can hold the node.
            BadWriterSchema: There are too many columns, or they are nested too deep.
        """
        self._columns += 1
        if self._columns > MOST_COLUMNS:
            raise BadWriterSchema(f"more than {MOST_COLUMNS:,} columns")
        if depth > MAX_NESTING:
            raise BadWriterSchema(f"types nested more than {MAX_NESTING} deep, at {path}")
        match node:
            case Within(name):
                raise _NoColumn(f"the type {name!r} contains itself")
            case Record(name, fields, scaled=None):
                if not columns(fields) and path != "$":
                    raise _NoColumn(f"the record {name!r} at {path} has no field that can be other than null")
                return self._record(node, path, depth + 1)
            case Union(branches, only):
                if only is None:
                    return Union(tuple(self._or_json(each, path, depth + 1) for each in branches), None)
                made = tuple(Branch(each.name, self.held(each.node, path, depth)) for each in branches)
                return Union(made, next(each.node for each in made if not isinstance(each.node, Null)))
            case Array(inner) | Map(inner):
                if is_null(inner):
                    raise _NoColumn(f"a list or a map of nothing but nulls, at {path}")
                at = f"{path}[]" if isinstance(node, Array) else f"{path}{{}}"
                return type(node)(self.held(inner, at, depth + 1))
            case _:
                return node

    def _record(self, node: Record, path: str, depth: int) -> Record:
        before = self._within
        self._within = (*before, node)
        try:
            fields = tuple(self._or_json(each, path, depth) for each in node.fields)
        finally:
            self._within = before
        return replace(node, fields=fields)

    def _or_json(self, each: T, path: str, depth: int) -> T:
        try:
            return replace(each, node=self.held(each.node, f"{path}.{each.name}", depth))
        except _NoColumn:
            return replace(each, node=Json(each.node, self._reached(each.node)))

    def _reached(self, node: Node) -> tuple[Record, ...]:
        """Return the records that contain a node, and those that it names from outside of them."""
        reached = {each.name: each for each in self._within}
        names, done = _names(node), set[str]()
        while names:
            name = names.pop()
            done.add(name)
            record = reached.setdefault(name, self._records[name])
            if name not in self._names:
                self._names[name] = _names(record)
            names |= self._names[name] - done
        return tuple(reached.values())


def _names(node: Node) -> set[str]:
    """Return the names by which a node refers to records that it does not contain there."""
    names: set[str] = set()
    seen: set[int] = set()
    nodes = [node]
    while nodes:
        match nodes.pop():
            case Within(name):
                names.add(name)
            case Array(inner) | Map(inner):
                nodes.append(inner)
            case (Record(_, parts) | Union(parts)) as several if id(several) not in seen:
                seen.add(id(several))
                nodes += [each.node for each in parts]
            case _:
                pass
    return names
