"""What a declared record is as an Arrow schema, as an Iceberg table, and whether it fits a table that exists."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema, assign_fresh_schema_ids

from jobs.schema.declared import DeclaredType, Field, ListType, MapType, Primitive, StructType
from jobs.schema.widening import holds

KAFKA_COLUMNS: tuple[tuple[str, ice.PrimitiveType], ...] = (
    ("_kafka_topic", ice.StringType()),
    ("_kafka_partition", ice.IntegerType()),
    ("_kafka_offset", ice.LongType()),
    ("_kafka_timestamp", ice.TimestamptzType()),
)
"""Where a landed row came from; optional columns, last in the table, in this order."""

_ICEBERG: dict[str, ice.PrimitiveType] = {
    "boolean": ice.BooleanType(),
    "int": ice.IntegerType(),
    "long": ice.LongType(),
    "float": ice.FloatType(),
    "double": ice.DoubleType(),
    "date": ice.DateType(),
    "timestamp": ice.TimestampType(),
    "timestamptz": ice.TimestamptzType(),
    "string": ice.StringType(),
    "binary": ice.BinaryType(),
}

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


def iceberg_schema(declared: StructType, *, kafka_columns: bool) -> Schema:
    """The schema of a new table for the declared record, with fresh field ids.

    Args:
        declared: The record.
        kafka_columns: Whether rows carry where they came from (KAFKA_COLUMNS).
    """
    # The ids given here only have to differ: assign_fresh_schema_ids numbers them as a catalog would.
    ids = iter(range(1, 1_000_000))
    columns = [_iceberg_field(field, ids) for field in declared.fields]
    if kafka_columns:
        columns += [ice.NestedField(next(ids), name, kind, required=False) for name, kind in KAFKA_COLUMNS]
    return assign_fresh_schema_ids(Schema(*columns))


def _iceberg_field(field: Field, ids: Iterator[int]) -> ice.NestedField:
    return ice.NestedField(next(ids), field.name, _iceberg_type(field.type, ids), required=field.required)


def _iceberg_type(declared: DeclaredType, ids: Iterator[int]) -> ice.IcebergType:
    match declared:
        case Primitive("decimal", int() as precision, int() as scale):
            return ice.DecimalType(precision, scale)
        case Primitive(name):
            return _ICEBERG[name]
        case StructType(fields):
            return ice.StructType(*[_iceberg_field(field, ids) for field in fields])
        case ListType(element, required):
            return ice.ListType(next(ids), _iceberg_type(element, ids), element_required=required)
        case MapType(key, value, required):
            return ice.MapType(
                next(ids), _iceberg_type(key, ids), next(ids), _iceberg_type(value, ids), value_required=required
            )


def disagreements(declared: StructType, table_schema: Schema, *, kafka_columns: bool) -> list[str]:
    """Why the declared record cannot be written to this table as it is.

    A table column may be wider (int → long, float → double, a decimal with more digits before and after the point)
    and may accept null where the declaration does not; optional columns that are not declared stay null.

    Returns:
        One sentence for each reason; empty if every row fits.
    """
    found = _struct_disagreements(declared, table_schema.as_struct(), "", kafka_columns=kafka_columns)
    if kafka_columns:
        columns = {field.name: field for field in table_schema.fields}
        for name, kind in KAFKA_COLUMNS:
            if name not in columns:
                found.append(f"The table has no column {name}; add it, or set kafka_columns: false.")
            elif not holds(kind, columns[name].field_type):
                found.append(f"Column {name} is {columns[name].field_type} in the table, where {kind} is needed.")
    return found


def _struct_disagreements(
    declared: StructType, table: ice.StructType, prefix: str, *, kafka_columns: bool
) -> list[str]:
    found: list[str] = []
    columns = {field.name: field for field in table.fields}
    by_case = {field.name.casefold(): field.name for field in table.fields}
    for field in declared.fields:
        path = prefix + field.name
        column = columns.get(field.name)
        if column is None:
            if other := by_case.get(field.name.casefold()):
                found.append(
                    f"Column {path} is declared, but the table calls it {prefix}{other}: names differ by case."
                )
            else:
                found.append(f"Column {path} is declared, but the table has no such column.")
            continue
        found += _value_disagreements(field.type, field.required, column.field_type, column.required, path)
    given = {field.name for field in declared.fields}
    if kafka_columns and not prefix:
        given |= {name for name, _ in KAFKA_COLUMNS}
    for column in table.fields:
        if column.required and column.name not in given:
            found.append(f"Column {prefix}{column.name} is required by the table, but it is not declared.")
    return found


def _value_disagreements(
    declared: DeclaredType, required: bool, column: ice.IcebergType, column_required: bool, path: str
) -> list[str]:
    found: list[str] = []
    if column_required and not required:
        found.append(f"Column {path} is required in the table, but declared without 'not null'.")
    match declared, column:
        case StructType(), ice.StructType():
            return found + _struct_disagreements(declared, column, path + ".", kafka_columns=False)
        case ListType(element, element_required), ice.ListType():
            return found + _value_disagreements(
                element, element_required, column.element_type, column.element_required, path + ".element"
            )
        case MapType(key, value, value_required), ice.MapType():
            found += _value_disagreements(key, True, column.key_type, True, path + ".key")
            return found + _value_disagreements(
                value, value_required, column.value_type, column.value_required, path + ".value"
            )
        case Primitive(), ice.PrimitiveType() if holds(_primitive(declared), column):
            return found
        case _:
            return [*found, f"Column {path} is declared as {declared}, but it is {column} in the table."]


def _primitive(declared: Primitive) -> ice.PrimitiveType:
    if declared.precision is not None and declared.scale is not None:
        return ice.DecimalType(declared.precision, declared.scale)
    return _ICEBERG[declared.name]
