"""Row as JSON: a table's row as the value of a dead letter whose record's bytes no longer exist.

Kafka's columns are left out, as the dead letter has them. The rest is exact: decoding by `row_decoder` gives the same
row.
"""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pyarrow as pa
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec, undeclared_column
from jobs.records.schema.declared import quoted
from jobs.records.schema.iceberg_schema import schema_text
from jobs.records.schema.kafka_columns import KafkaColumns

DISCARDED_ROW = "discarded_row"
"""Stage of dead letters whose value is a row as JSON."""

_ENCODED = (
    (ice.FloatType, "text"),
    (ice.DoubleType, "text"),
    (ice.DecimalType, "text"),
    (ice.DateType, "epoch_days"),
    (ice.TimestampType, "epoch_us"),
    (ice.TimestamptzType, "epoch_us"),
    (ice.TimeType, "micros_of_day"),
)
"""Notation of types whose values JSON's own numbers and texts do not hold exactly."""


def carried_columns(table: Schema, kafka: KafkaColumns) -> Schema:
    """Columns of a table that a row as JSON has.

    Args:
        kafka: The table's columns of Kafka's coordinates.
    """
    return Schema(*(each for each in table.fields if each.name not in kafka.names))


def uncarried_column(table: Schema, kafka: KafkaColumns) -> str | None:
    """A column of a table that a row as JSON cannot have, and why; None if it can have all."""
    return undeclared_column(carried_columns(table, kafka))


def row_decoder(table: Schema, kafka: KafkaColumns) -> DecoderSpec:
    """Decoder of rows as JSON into a table's present columns.

    A field without a column is refused, as it would be lost silently. Columns that a row as JSON cannot have stay null.
    """
    fields = [each for each in carried_columns(table, kafka).fields if undeclared_column(Schema(each)) is None]
    return DecoderSpec("json", DeclaredSchema(", ".join(map(_field, fields))), {"unknown_fields": "fail"})


def rows_as_json(rows: pa.RecordBatch, table: Schema, kafka: KafkaColumns) -> list[bytes]:
    """Rows of a table as JSON objects by column name; null fields are left out.

    Args:
        rows: Rows with the table's columns, in types that cast to them.
        kafka: The table's columns of Kafka's coordinates.
    """
    columns: list[tuple[str, list[Any]]] = []
    for field in carried_columns(table, kafka).fields:
        values = rows.column(field.name).cast(_arrow(field.field_type)).to_pylist()
        write = _writer(field.field_type)
        columns.append((field.name, [None if value is None else write(value) for value in values]))
    encode = msgspec.json.Encoder().encode
    return [
        encode({name: values[row] for name, values in columns if values[row] is not None})
        for row in range(rows.num_rows)
    ]


def _field(field: ice.NestedField) -> str:
    return f"{quoted(field.name)} {_text(field.field_type)}{' not null' if field.required else ''}"


def _text(kind: ice.IcebergType) -> str:
    """A type as schema text, with its notation here."""
    match kind:
        case ice.StructType():
            return f"struct<{', '.join(map(_field, kind.fields))}>"
        case ice.ListType():
            return f"list<{_text(kind.element_type)}{' not null' if kind.element_required else ''}>"
        case ice.MapType():
            value = f"{_text(kind.value_type)}{' not null' if kind.value_required else ''}"
            return f"map<{schema_text(kind.key_type)}, {value}>"
        case _:
            encoding = next((word for type_, word in _ENCODED if isinstance(kind, type_)), None)
            return schema_text(kind) + (f" as {encoding}" if encoding else "")


def _arrow(kind: ice.IcebergType) -> pa.DataType:
    """Arrow type whose Python values are written: instants and days as numbers, which have no bounds there."""
    match kind:
        case ice.StructType():
            return pa.struct([pa.field(each.name, _arrow(each.field_type)) for each in kind.fields])
        case ice.ListType():
            return pa.list_(_arrow(kind.element_type))
        case ice.MapType():
            return pa.map_(_arrow(kind.key_type), _arrow(kind.value_type))
        case ice.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case ice.FixedType():
            return pa.binary(len(kind))
        case _:
            return _PRIMITIVES[type(kind)]


_PRIMITIVES: dict[type[ice.IcebergType], pa.DataType] = {
    ice.BooleanType: pa.bool_(),
    ice.IntegerType: pa.int32(),
    ice.LongType: pa.int64(),
    ice.FloatType: pa.float32(),
    ice.DoubleType: pa.float64(),
    ice.DateType: pa.int32(),
    ice.TimestampType: pa.int64(),
    ice.TimestamptzType: pa.int64(),
    ice.TimeType: pa.int64(),
    ice.StringType: pa.string(),
    ice.UUIDType: pa.binary(16),
    ice.BinaryType: pa.binary(),
}


def _writer(kind: ice.IcebergType) -> Callable[[Any], Any]:
    """Function from a Python value that is not null to its JSON value."""
    match kind:
        case ice.StructType():
            fields = [(each.name, _writer(each.field_type)) for each in kind.fields]
            return lambda value: {name: write(value[name]) for name, write in fields if value[name] is not None}
        case ice.ListType():
            element = _writer(kind.element_type)
            return lambda value: [None if each is None else element(each) for each in value]
        case ice.MapType():
            item = _writer(kind.value_type)
            return lambda value: {key: None if each is None else item(each) for key, each in _pairs(value)}
        case ice.FloatType() | ice.DoubleType():
            return _float
        case ice.DecimalType():
            return lambda value: f"{value:f}"
        case ice.UUIDType():
            return lambda value: str(value if isinstance(value, uuid.UUID) else uuid.UUID(bytes=value))
        case ice.BinaryType() | ice.FixedType():
            return lambda value: base64.b64encode(value).decode()
        case _:
            return lambda value: value


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else value


def _float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
