"""Connect types: what the logical types of Kafka Connect and of Debezium mean, by their names in schemas.

The names are those of `org.apache.kafka.connect.data` and `io.debezium.time`. Connect's own sink knows only the former,
and writes the others as the numbers that carry them; Frazil converts all of them to what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

Carrier: TypeAlias = Literal["int32", "int64", "string", "bytes"]
Unit: TypeAlias = Literal["days", "ms", "us", "ns", "iso"]


class LogicalType(NamedTuple):
    """A logical type.

    Attributes:
        carrier: The type of Connect that carries the values.
        type: Iceberg's word for the values: `decimal`, `date`, `time`, `timestamp`, `timestamptz` or `uuid`.
        unit: What a number counts: days since 1970-01-01, or parts of a second since then or since midnight; `iso` for
            a text; None for a decimal and a uuid.
    """

    carrier: Carrier
    type: Literal["decimal", "date", "time", "timestamp", "timestamptz", "uuid"]
    unit: Unit | None = None


DECIMAL = "org.apache.kafka.connect.data.Decimal"
"""A decimal in bytes: the unscaled value, big-endian, in two's complement. The schema's parameter `scale` is the number
of digits after the point; Connect has no precision, so the type is a decimal of MOST_DIGITS.
"""

MOST_DIGITS = 38

JSON = "io.debezium.data.Json"
"""A string whose text is JSON: it stays a string, unless its column is declared as `json`."""

LOGICAL_TYPES: Mapping[str, LogicalType] = {
    DECIMAL: LogicalType("bytes", "decimal"),
    "org.apache.kafka.connect.data.Date": LogicalType("int32", "date", "days"),
    "org.apache.kafka.connect.data.Time": LogicalType("int32", "time", "ms"),
    "org.apache.kafka.connect.data.Timestamp": LogicalType("int64", "timestamptz", "ms"),
    "io.debezium.time.Date": LogicalType("int32", "date", "days"),
    "io.debezium.time.Time": LogicalType("int32", "time", "ms"),
    "io.debezium.time.MicroTime": LogicalType("int64", "time", "us"),
    "io.debezium.time.NanoTime": LogicalType("int64", "time", "ns"),
    "io.debezium.time.Timestamp": LogicalType("int64", "timestamp", "ms"),
    "io.debezium.time.MicroTimestamp": LogicalType("int64", "timestamp", "us"),
    "io.debezium.time.NanoTimestamp": LogicalType("int64", "timestamp", "ns"),
    "io.debezium.time.ZonedTimestamp": LogicalType("string", "timestamptz", "iso"),
    "io.debezium.data.Uuid": LogicalType("string", "uuid"),
}
"""Logical types by the name of a schema; such a schema must have the type that carries them.

Debezium's `Timestamp`, `MicroTimestamp` and `NanoTimestamp` are of columns without a zone. `VariableScaleDecimal`,
geometries and intervals are structs and numbers like any other.
"""

AS_SENT = "as_sent"
"""Option of formats with logical types: the names of those whose values stay as they are carried."""


def decimal_scale(parameters: Mapping[str, str]) -> int | None:
    """Return the scale of a schema with the name DECIMAL; None if it gives none, or none from 0 to 38."""
    text = parameters.get("scale", "")
    if not (text.isascii() and text.isdigit() and len(text) < 3):
        return None
    return int(text) if int(text) <= MOST_DIGITS else None
