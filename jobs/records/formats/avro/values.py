"""Values of Avro's logical types: exact conversion of numbers, bytes and texts, or the reason of a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from pyiceberg import types as ice

from jobs.records.formats.avro.nodes import Logical
from jobs.records.formats.columns.text_values import (
    FIRST_DAY,
    FIRST_MICROSECOND,
    LAST_DAY,
    LAST_MICROSECOND,
    exact_timestamp,
    exact_uuid,
)
from jobs.records.formats.interface.problems import (
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_LENGTH,
    ValueProblem,
    shown,
)

DAY = 86_400_000_000
"""Microseconds of a day."""
MICROS: Mapping[str, int] = {"ms": 1_000, "us": 1}
"""Microseconds of units that are not shorter."""

_LONGEST_DECIMAL = 32
"""Limit of bytes of an unscaled value, far more than 38 digits take."""


def exact(logical: Logical) -> Callable[[Any], Any]:
    """Return a function that converts encoded values to Arrow's storage; it raises `ValueProblem` for invalid ones.

    Dates become days, times and timestamps microseconds, decimals have their scale, a UUID becomes 16 bytes.
    """
    match logical.type:
        case ice.DecimalType() as kind:
            return lambda data: exact_unscaled(data, kind.precision, kind.scale)
        case ice.DateType():
            return _exact_day
        case ice.UUIDType():
            return exact_uuid if logical.unit == "uuid" else bytes
        case ice.TimeType():
            return lambda number: _exact_time(number, logical.unit)
        case kind if logical.unit == "iso":
            return lambda text: exact_timestamp(text, zoned=isinstance(kind, ice.TimestamptzType))
        case kind:
            return lambda number: _exact_instant(number, logical.unit, str(kind))


def exact_unscaled(data: bytes, precision: int, scale: int) -> Decimal:
    """Return the decimal of unscaled bytes: two's complement, big-endian, possibly with more bytes than needed.

    Raises:
        ValueProblem: wrong_length for no bytes, or out_of_range.
    """
    needed = f"decimal({precision},{scale})"
    if not data:
        raise ValueProblem(WRONG_LENGTH, f"needs the bytes of a {needed}, found none")
    fill = b"\xff" if data[0] & 0x80 else b"\x00"
    significant = data.lstrip(fill)
    if len(significant) > _LONGEST_DECIMAL:
        raise ValueProblem(OUT_OF_RANGE, f"needs {needed}, found a number of {len(significant)} bytes")
    number = int.from_bytes(fill + significant, signed=True)
    found = Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))
    if abs(number) >= 10**precision:
        message = f"needs {needed}, found {shown(format(found, 'f'))} with too many digits before the point"
        raise ValueProblem(OUT_OF_RANGE, message)
    return found


def _exact_day(number: int) -> int:
    if not FIRST_DAY <= number <= LAST_DAY:
        raise ValueProblem(OUT_OF_RANGE, f"needs date in the years 0001 to 9999, found {number}")
    return number


def _exact_time(number: int, unit: str) -> int:
    micros = _micros(number, unit, "time")
    if not 0 <= micros < DAY:
        raise ValueProblem(OUT_OF_RANGE, f"needs time of one day, found {number} {unit}")
    return micros


def _exact_instant(number: int, unit: str, kind: str) -> int:
    micros = _micros(number, unit, kind)
    if not FIRST_MICROSECOND <= micros <= LAST_MICROSECOND:
        raise ValueProblem(OUT_OF_RANGE, f"needs {kind} in the years 0001 to 9999, found {number} {unit}")
    return micros


def _micros(number: int, unit: str, kind: str) -> int:
    if unit != "ns":
        return number * MICROS[unit]
    micros, rest = divmod(number, 1_000)
    if rest:
        raise ValueProblem(PRECISION_LOSS, f"needs {kind} in whole microseconds, found {number}")
    return micros
