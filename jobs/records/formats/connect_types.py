"""Connect types: what the logical types of Kafka Connect and of Debezium mean, by their names in schemas.

The names are those of `org.apache.kafka.connect.data` and `io.debezium.time`. Connect's own sink knows only the former
and writes the others as the numbers that they are carried in; here they become what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

Carrier: TypeAlias = Literal["int32", "int64", "string", "bytes"]
Unit: TypeAlias = Literal["days", "ms", "us", "ns", "iso"]


class LogicalType(NamedTuple):
    """What values of a logical type are.

    Attributes:
        carrier: The type of Connect that carries them.
        type: Iceberg's word for what they are: `decimal`, `date`, `time`, `timestamp`, `timestamptz` or `uuid`.
        unit: What a number counts: days since 1970-01-01, parts of a second since then or since midnight; `iso` of a
            text; None of a decimal and a uuid.
    """

    carrier: Carrier
    type: Literal["decimal", "date", "time", "timestamp", "timestamptz", "uuid"]
    unit: Unit | None = None


DECIMAL = "org.apache.kafka.connect.data.Decimal"
"""Bytes: the unscaled value, big-endian, two's complement. The schema's parameter `scale` says the digits after the
point; Connect knows no precision, so it is a decimal of MOST_DIGITS."""

MOST_DIGITS = 38

JSON = "io.debezium.data.Json"
"""Strings whose text is JSON: they are strings, and what they say where a column is declared as `json`."""

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
"""By the name of a schema. A schema of one of these names that has another type than the carrier is none.

Debezium's `Timestamp`, `MicroTimestamp` and `NanoTimestamp` are of columns without a zone. `VariableScaleDecimal`,
geometries and intervals are structs and numbers like any other.
"""

AS_SENT = "as_sent"
"""The option of formats with logical types: the names of those whose values stay what carries them."""


def decimal_scale(parameters: Mapping[str, str]) -> int | None:
    """The scale of a schema with the name DECIMAL; None if it does not say, or says none from 0 to 38."""
    text = parameters.get("scale", "")
    if not (text.isascii() and text.isdigit() and len(text) < 3):
        return None
    return int(text) if int(text) <= MOST_DIGITS else None
