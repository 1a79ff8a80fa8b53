"""Arrow schema of a declared record."""

from __future__ import annotations

import pyarrow as pa

from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}


def arrow_schema(declared: StructType) -> pa.Schema:
    """The Arrow schema of decoded columns; a required field is not nullable."""
    return pa.schema([arrow_field(field) for field in declared.fields])


def arrow_field(field: Field) -> pa.Field:
    """The Arrow field of one declared field."""
    return pa.field(field.name, arrow_type(field.type), nullable=not field.required)


def arrow_type(declared: DeclaredType) -> pa.DataType:
    """The Arrow type a declared type decodes to; never one of Arrow's large types."""
    match declared:
        case Primitive("decimal", int() as precision, int() as scale):
            return pa.decimal128(precision, scale)
        case Primitive(name):
            return _ARROW[name]
        case StructType(fields):
            return pa.struct([arrow_field(field) for field in fields])
        case ListType(element, required):
            return pa.list_(pa.field("element", arrow_type(element), nullable=not required))
        case MapType(key, value, required):
            value_field = pa.field("value", arrow_type(value), nullable=not required)
            return pa.map_(pa.field("key", arrow_type(key), nullable=False), value_field)
