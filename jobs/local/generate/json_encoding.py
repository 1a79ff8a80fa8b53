"""JSON of rows: each value in the form that its declared type names, and the shape that the type gives it."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from typing import Any

import msgspec
from pyiceberg import types as ice

from jobs.base.errors import FrazilError
from jobs.local.generate.rows import (
    Entries,
    Items,
    Leaf,
    Member,
    Row,
    Shape,
    Struct,
)
from jobs.records.formats.json.writer_decoder import VALUE_COLUMN, JsonWriterTypes
from jobs.records.schema.declared import (
    DeclaredType,
    Field,
    ListType,
    MapType,
    Primitive,
    StructType,
)
from jobs.records.schema.iceberg_schema import iceberg_schema

_EXACT = Context(prec=80)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"epoch_s": 1, "epoch_ms": 1_000, "epoch_us": 1_000_000, "epoch_ns": 1_000_000_000}
_UNITS_OF_DAY = {"millis_of_day": 1_000, "micros_of_day": 1_000_000, "nanos_of_day": 1_000_000_000}
_MOST = {"int8": 127, "int16": 32_767}


class JsonEncoder:
    """Writes rows as JSON.

    Args:
        types: Types of the records.
        sends_null: Whether null is written; otherwise what is null is left out of its object.

    Attributes:
        shape: Shape of the rows.
    """

    def __init__(self, types: JsonWriterTypes, *, sends_null: bool = True) -> None:
        self._types: JsonWriterTypes = types
        self._sends_null: bool = sends_null
        self.shape: Struct = json_shape(types.declared)

    def encode(self, row: Row) -> bytes:
        """The JSON of a row."""
        return json_text(self.value(row))

    def value(self, row: Row) -> Any:
        """Value to encode as JSON: a dict of the row's members, or a single value."""
        if self._types.single:
            return json_value(self._types.declared.fields[0].type, row.get(VALUE_COLUMN))
        members = json_members(self._types.declared, row)
        return members if self._sends_null else _without_null(members)


def json_shape(declared: StructType) -> Struct:
    """Generator shape for rows of declared columns.

    Raises:
        FrazilError: A column is written in a way that this does not know.
    """
    return _struct_shape(declared, "")


def json_members(declared: StructType, row: Row) -> dict[str, Any]:
    """Convert a row to a JSON object for msgspec, without missing members."""
    return {each.name: json_value(each.type, row[each.name]) for each in declared.fields if each.name in row}


def json_value(declared: DeclaredType, value: Any) -> Any:
    """A value of a row as JSON carries it, for msgspec to write."""
    if value is None:
        return None
    match declared:
        case StructType():
            return json_members(declared, value)
        case ListType(element):
            return [json_value(element, each) for each in value]
        case MapType(key, inner, _, carried):
            pairs = [(json_value(key, one), json_value(inner, two)) for one, two in value]
            if carried == "entries":
                return [{"key": one, "value": two} for one, two in pairs]
            return pairs if carried == "pairs" else dict(pairs)
        case Primitive():
            return _primitive(declared, value)


def json_text(value: Any) -> bytes:
    """JSON of the values made above."""
    return msgspec.json.encode(value)


def _primitive(kind: Primitive, value: Any) -> Any:
    match kind.name:
        case "int" | "long" | "float" | "double" if kind.encoding == "text":
            return str(value)
        case "decimal":
            return _decimal(kind, value)
        case "uuid":
            return str(value)
        case "binary" | "fixed":
            return value.hex() if kind.encoding == "hex" else base64.b64encode(value).decode()
        case "date":
            return days(value) if kind.encoding == "epoch_days" else value.isoformat()
        case "time":
            return _time(kind, value)
        case "timestamp" | "timestamptz":
            return _instant(kind, value)
        case _:
            return value


def _decimal(kind: Primitive, value: Decimal) -> Any:
    if kind.encoding == "unscaled":
        return base64.b64encode(unscaled(value, kind.scale or 0)).decode()
    return f"{value:f}" if kind.encoding == "text" else msgspec.Raw(f"{value:f}".encode())


def unscaled(value: Decimal, scale: int) -> bytes:
    """A decimal without its point, big-endian in two's complement.

    Args:
        scale: The digits after the point, at least as many as the value has.
    """
    number = int(value.scaleb(scale, _EXACT))
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def micros_of_day(value: time) -> int:
    """Microseconds since midnight."""
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def micros(value: datetime) -> int:
    """Microseconds since 1970-01-01; UTC without a zone."""
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // datetime.resolution


def days(value: date) -> int:
    """Days since 1970-01-01."""
    return (value - _EPOCH.date()).days


def _time(kind: Primitive, value: time) -> Any:
    if kind.encoding == "iso":
        return value.isoformat(timespec="milliseconds")
    return micros_of_day(value) * _UNITS_OF_DAY[kind.encoding or ""] // 1_000_000


def _instant(kind: Primitive, value: datetime) -> Any:
    if kind.encoding == "iso":
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return micros(value) * _UNITS[kind.encoding or ""] // 1_000_000


def _struct_shape(declared: StructType, path: str) -> Struct:
    return Struct(
        tuple(
            Member(each.name, _shape(each.type, f"{path}.{each.name}" if path else each.name), not each.required)
            for each in declared.fields
        )
    )


def _shape(declared: DeclaredType, path: str) -> Shape:
    match declared:
        case StructType():
            return _struct_shape(declared, path)
        case ListType(element):
            return Items(_shape(element, f"{path}.element"))
        case MapType(key, value):
            return Entries(json_leaf(key, path), _shape(value, f"{path}.value"))
        case Primitive():
            return json_leaf(declared, path)


def json_leaf(kind: Primitive, path: str) -> Leaf:
    """Generator of a type's values.

    Raises:
        FrazilError: The type at a path has an unsupported form.
    """
    if kind.encoding == "pattern":
        raise FrazilError(f"column {path}: values of the type {kind} cannot be generated")
    column = iceberg_schema(StructType((Field("column", kind),))).fields[0].field_type
    assert isinstance(column, ice.PrimitiveType)
    return Leaf(column, most=_MOST.get(kind.encoding or ""), json="object" if kind.name == "json" else None)


def _without_null(value: Any) -> Any:
    match value:
        case dict():
            return {name: _without_null(each) for name, each in value.items() if each is not None}
        case list():
            return [_without_null(each) for each in value]
        case _:
            return value
