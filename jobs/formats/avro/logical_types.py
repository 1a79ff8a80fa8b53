"""Logical types of Avro schemas: Avro's own, and those of Kafka Connect and Debezium by the name in `connect.name`.

A logical type that does not go with its type, or whose attributes are none, is left out, as Avro demands: the values
are what they are without it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from pyiceberg import types as ice

from jobs.formats.avro.nodes import Logical
from jobs.formats.connect_types import DECIMAL, LOGICAL_TYPES, MOST_DIGITS, decimal_scale
from jobs.formats.writer_schema import BadWriterSchema

_CONNECT_NAMES: Mapping[str, str] = {"int": "int32", "long": "int64", "string": "string", "bytes": "bytes"}
_TYPES: Mapping[str, ice.PrimitiveType] = {
    "date": ice.DateType(),
    "time": ice.TimeType(),
    "timestamp": ice.TimestampType(),
    "timestamptz": ice.TimestamptzType(),
}
_AVRO: Mapping[tuple[str, str], Logical] = {
    ("int", "date"): Logical(ice.DateType(), "days"),
    ("int", "time-millis"): Logical(ice.TimeType(), "ms"),
    ("long", "time-micros"): Logical(ice.TimeType(), "us"),
    ("long", "timestamp-millis"): Logical(ice.TimestamptzType(), "ms"),
    ("long", "timestamp-micros"): Logical(ice.TimestamptzType(), "us"),
    ("long", "timestamp-nanos"): Logical(ice.TimestamptzType(), "ns"),
    ("long", "local-timestamp-millis"): Logical(ice.TimestampType(), "ms"),
    ("long", "local-timestamp-micros"): Logical(ice.TimestampType(), "us"),
    ("long", "local-timestamp-nanos"): Logical(ice.TimestampType(), "ns"),
    ("string", "uuid"): Logical(ice.UUIDType(), "uuid"),
}


def logical_type(name: str, attributes: Mapping[str, Any], size: int | None = None) -> Logical | None:
    """What values of a type mean; None if they are what they are.

    Args:
        name: Of the type: a primitive one, or `fixed`.
        attributes: Of the schema.
        size: Of a fixed one, in bytes.

    Raises:
        BadWriterSchema: A decimal has more digits after the point than a column holds.
    """
    if (known := _by_connect_name(name, attributes)) is not None:
        return known
    match attributes.get("logicalType"):
        case "decimal" if name in ("bytes", "fixed"):
            return _decimal(attributes, size)
        case "uuid" if size == 16:
            return Logical(ice.UUIDType(), "same")
        case str() as logical:
            return _AVRO.get((name, logical))
        case _:
            return None


def _by_connect_name(name: str, attributes: Mapping[str, Any]) -> Logical | None:
    connect_name = attributes.get("connect.name")
    known = LOGICAL_TYPES.get(connect_name) if isinstance(connect_name, str) else None
    if known is None or known.carrier != _CONNECT_NAMES.get(name):
        return None
    if connect_name == DECIMAL:
        return _connect_decimal(attributes)
    if known.type == "uuid":
        return Logical(ice.UUIDType(), "uuid")
    return Logical(_TYPES[known.type], known.unit or "iso")


def _connect_decimal(attributes: Mapping[str, Any]) -> Logical | None:
    """Connect's decimal: the precision that Avro's attributes or Debezium's parameter say, if a column holds it."""
    given = attributes.get("connect.parameters")
    parameters = {key: text for key, text in given.items() if isinstance(text, str)} if isinstance(given, dict) else {}
    scale: Any = decimal_scale(parameters)
    if scale is None:
        scale = attributes.get("scale", 0)
    if not _whole(scale) or scale < 0:
        return None
    said = parameters.get("connect.decimal.precision", "")
    precision: Any = int(said) if said.isascii() and said.isdigit() and len(said) < 4 else attributes.get("precision")
    if _whole(precision) and max(scale, 1) <= precision <= MOST_DIGITS:
        return _decimal_of(precision, scale)
    return _decimal_of(MOST_DIGITS, scale)


def _decimal(attributes: Mapping[str, Any], size: int | None) -> Logical | None:
    precision, scale = attributes.get("precision"), attributes.get("scale", 0)
    if not _whole(precision) or not _whole(scale) or precision < 1 or not 0 <= scale <= precision:
        return None
    # Of two to the power of the bits, one for the sign, the digits that any number has.
    if size is not None and precision > (8 * size - 1) * math.log10(2):
        return None
    return _decimal_of(min(precision, MOST_DIGITS), scale)


def _decimal_of(precision: int, scale: int) -> Logical:
    if scale > MOST_DIGITS:
        raise BadWriterSchema(f"a decimal with {scale} digits after the point: a column holds at most {MOST_DIGITS}")
    return Logical(ice.DecimalType(precision, scale), "unscaled")


def _whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
