"""Arrow schema of rows, from a declared record or from columns in Iceberg's types."""

from __future__ import annotations

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.iceberg_schema import JsonText, Presence

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
    "time": pa.time64("us"),
    "string": pa.string(),
    "json": pa.string(),
    "uuid": pa.binary(16),
    "binary": pa.binary(),
}


_ROWS_ARROW: dict[type[ice.IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.DateType: pa.date32(),
    ice.TimeType: pa.time64("us"),
    ice.TimestampType: pa.timestamp("us"),
    ice.TimestamptzType: pa.timestamp("us", tz="UTC"),
    ice.StringType: pa.string(),
    JsonText: pa.string(),
    Presence: pa.bool_(),
    ice.BinaryType: pa.binary(),
    ice.UUIDType: pa.binary(16),
}


def arrow_schema(declared: StructType) -> pa.Schema:
    """Return the Arrow schema of decoded columns; a required field is not nullable."""
    return pa.schema([arrow_field(field) for field in declared.fields])


def rows_arrow_schema(rows: Schema) -> pa.Schema:
    """Return the Arrow schema of rows with these columns; a required field is not nullable."""
    return pa.schema([_rows_field(field) for field in rows.fields])


def _rows_field(field: ice.NestedField) -> pa.Field:
    return pa.field(field.name, rows_arrow_type(field.field_type), nullable=not field.required)


def rows_arrow_type(kind: ice.IcebergType) -> pa.DataType:
    """Return the Arrow type of rows' values of an Iceberg type: a uuid as its 16 bytes, a time in microseconds."""
    match kind:
        case ice.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ice.FixedType():
            return pa.binary(len(kind))
        case ice.StructType():
            return pa.struct([_rows_field(field) for field in kind.fields])
        case ice.ListType():
            element = kind.element_field
            return pa.list_(pa.field("element", rows_arrow_type(element.field_type), nullable=not element.required))
        case ice.MapType():
            key, value = kind.key_field, kind.value_field
            return pa.map_(
                pa.field("key", rows_arrow_type(key.field_type), nullable=False),
                pa.field("value", rows_arrow_type(value.field_type), nullable=not value.required),
            )
        case _:
            return _ROWS_ARROW[type(kind)]


def arrow_field(field: Field) -> pa.Field:
    """Return the Arrow field of one declared field."""
    return pa.field(field.name, arrow_type(field.type), nullable=not field.required)


def arrow_type(declared: DeclaredType) -> pa.DataType:
    """Return the Arrow type that a declared type decodes to; never one of Arrow's large types."""
    match declared:
        case Primitive("decimal", int() as precision, int() as scale):
            return pa.decimal128(precision, scale)
        case Primitive("fixed", length=int() as length):
            return pa.binary(length)
        case Primitive(name):
            return _ARROW[name]
        case StructType(fields):
            return pa.struct([arrow_field(field) for field in fields])
        case ListType(element, required):
            return pa.list_(pa.field("element", arrow_type(element), nullable=not required))
        case MapType(key, value, required):
            value_field = pa.field("value", arrow_type(value), nullable=not required)
            return pa.map_(pa.field("key", arrow_type(key), nullable=False), value_field)
