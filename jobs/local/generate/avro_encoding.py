"""Avro records: rows of a writer schema in Avro's binary encoding, written by fastavro."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from functools import partial
from typing import Any

from pyiceberg import types as ice

from jobs.local.generate.json_encoding import (
    days,
    micros,
    micros_of_day,
    unscaled,
)
from jobs.local.generate.rows import (
    Entries,
    Items,
    Leaf,
    Member,
    Row,
    Shape,
    Struct,
)
from jobs.records.formats.avro.nodes import (
    Array,
    Enum,
    FieldNode,
    Fixed,
    Json,
    Logical,
    Map,
    Node,
    Null,
    Plain,
    Record,
    Union,
    Within,
)
from jobs.records.formats.avro.options import AvroOptions
from jobs.records.formats.avro.schema import (
    VALUE,
    is_null,
    is_struct,
    optional,
    top_node,
)
from jobs.records.formats.interface.writer_schema import BadWriterSchema, WriterSchema

_PLAIN: Mapping[str, ice.PrimitiveType] = {
    "boolean": ice.BooleanType(),
    "int": ice.IntegerType(),
    "long": ice.LongType(),
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "bytes": ice.BinaryType(),
    "string": ice.StringType(),
}
_PARTS = {"ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class AvroEncoder:
    """Encoder of rows in a writer schema.

    Args:
        schema: Schema with its references.
        options: Options of the stream's decoder, which decide the columns of the schema's types.

    Attributes:
        shape: Shape of the rows.

    Raises:
        BadWriterSchema: The schema is invalid, or fastavro does not support it.
    """

    def __init__(self, schema: WriterSchema, options: Mapping[str, Any]) -> None:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType

        self._node: Node = top_node(schema, AvroOptions.of(options))
        self._struct: bool = is_struct(self._node)
        named: dict[str, Any] = {}
        try:
            for _, text in schema.references:
                fastavro.parse_schema(json.loads(text), named_schemas=named)
            parsed = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
        except (SchemaParseException, UnknownType, ValueError) as problem:
            raise BadWriterSchema(f"fastavro refuses it: {problem}") from None
        self._write: Any = partial(fastavro.schemaless_writer, schema=parsed)
        whole = _shape(self._node)
        if not self._struct:
            whole = Struct((Member(VALUE, whole, optional(self._node)),))
        assert isinstance(whole, Struct)
        self.shape: Struct = whole

    def encode(self, row: Row) -> bytes:
        """The bytes of a row, without what names the schema."""
        written = io.BytesIO()
        self._write(written, record=_datum(self._node, row if self._struct else row.get(VALUE)))
        return written.getvalue()


def _shape(node: Node) -> Shape:
    match node:
        case Plain(name, logical):
            return Leaf(logical.type if logical else _PLAIN[name])
        case Fixed(_, size, logical):
            return _fixed_shape(size, logical)
        case Enum(_, symbols):
            return Leaf(ice.StringType(), symbols)
        case Array(items):
            return Items(_shape(items))
        case Map(values):
            return Entries(Leaf(ice.StringType()), _shape(values))
        case Union(only=only) if only is not None:
            return _shape(only)
        case Union():
            return Struct(tuple(Member(each.name, _shape(each.node), True) for each in node.filled), one=True)
        case Record(scaled=ice.StringType()):
            return Leaf(ice.StringType(), ("0", "0.5", "12.75", "1999.999"))
        case Record(scaled=scaled) if scaled is not None:
            return Leaf(scaled)
        case Record():
            return Struct(tuple(_member(each) for each in node.fields if not is_null(each.node)))
        case Json() | Within():
            raise BadWriterSchema("types that no column has are not generated")
        case Null():
            raise AssertionError("null has no shape")


def _fixed_shape(size: int, logical: Logical | None) -> Leaf:
    match logical:
        case None:
            return Leaf(ice.FixedType(size))
        case Logical(ice.DecimalType(precision=precision, scale=scale)):
            # A schema may promise fewer digits than its bytes hold, never more.
            return Leaf(ice.DecimalType(precision, scale))
        case Logical(kind):
            return Leaf(kind)


def _member(field: FieldNode) -> Member:
    return Member(field.name, _shape(field.node), optional(field.node))


def _datum(node: Node, value: Any) -> Any:
    """Value for fastavro; a logical type as its underlying bytes, number or text."""
    match node:
        case Null():
            return None
        case Plain(_, None) | Enum() | Fixed(_, _, None):
            return value
        case Plain(_, Logical() as logical):
            return _carried(logical, value)
        case Fixed(_, size, Logical() as logical):
            found = _carried(logical, value)
            sign = b"\xff" if isinstance(value, Decimal) and value < 0 else b"\0"
            return found.rjust(size, sign)[-size:] if logical.unit == "unscaled" else found
        case Array(items):
            return [_datum(items, each) for each in value]
        case Map(values):
            return {key: _datum(values, each) for key, each in value}
        case Union():
            return _chosen(node, value)
        case Record(scaled=None):
            return {each.name: _datum(each.node, value.get(each.name)) for each in node.fields}
        case Record():
            number = Decimal(value)
            scale = max(0, -int(number.as_tuple().exponent))
            return {"scale": scale, "value": unscaled(number, scale)}


def _chosen(node: Union, value: Any) -> Any:
    if value is None:
        return None
    if node.only is not None:
        return _datum(node.only, value)
    name, inner = next((name, inner) for name, inner in value.items() if inner is not None)
    branch = next(each for each in node.filled if each.name == name)
    match branch.node:
        case Record(full) | Enum(full) | Fixed(full):
            return (full, _datum(branch.node, inner))
        case _:
            return (name, _datum(branch.node, inner))


def _carried(logical: Logical, value: Any) -> Any:
    match logical:
        case Logical(_, "days"):
            return days(value) if isinstance(value, date) else value
        case Logical(ice.TimeType(), unit):
            return micros_of_day(value) * _PARTS[unit] // 1_000_000
        case Logical(_, "ms" | "us" | "ns" as unit):
            return micros(value) * _PARTS[unit] // 1_000_000
        case Logical(_, "iso"):
            return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        case Logical(ice.DecimalType(scale=scale), "unscaled"):
            return unscaled(value, scale)
        case Logical(_, "uuid"):
            return str(value)
        case _:
            return value.bytes
