"""Values of Protobuf's types: the exact meaning of one value, or why it is refused.

Fields of a problem are relative to the value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Context, Decimal
from typing import Any

from google.protobuf.unknown_fields import UnknownFieldSet

from jobs.records.formats.columns.text_values import FIRST_MICROSECOND, LAST_MICROSECOND
from jobs.records.formats.interface.problems import (
    BAD_DATE,
    BAD_TIME,
    BAD_TIMESTAMP,
    INVALID_UTF8,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_TYPE,
    ValueProblem,
    shown,
)
from jobs.records.formats.json_texts import canonical
from jobs.records.formats.protobuf.message_tree import (
    INTEGERS,
    Enum,
    Logical,
    Scalar,
)

_EPOCH = date(1970, 1, 1).toordinal()
_WIDE_CONTEXT = Context(prec=1000)
_SECOND = 1_000_000_000


def scalar(kind: Scalar) -> Callable[[Any], Any] | None:
    """Return a function that reads a scalar from its wire message; None if that holds the value itself."""
    if kind.kind == "string":
        return _text
    if kind.kind in ("uint64", "fixed64"):
        return Decimal
    if kind.kind not in ("int32", "sint32", "uint32"):
        return None
    least, greatest = INTEGERS[kind.kind]

    def read(value: int) -> int:
        if not least <= value <= greatest:
            raise ValueProblem(OUT_OF_RANGE, f"needs {kind.kind}, found a number beyond its range", "")
        return value

    return read


def enum(kind: Enum) -> Callable[[int], Any]:
    """Return a function that reads an enum from its number."""
    names: Mapping[int, str] = kind.names

    def read(value: int) -> str:
        if value not in names:
            raise ValueProblem(OUT_OF_RANGE, f"needs a number of the enum {kind.name}, found {value}", "")
        return names[value]

    return scalar(Scalar("int32")) or int if kind.as_number else read


def logical(kind: Logical) -> Callable[[Mapping[int, Any]], Any]:
    """Return a function that reads the value of a logical type from all fields of its message, by their numbers.

    Returns:
        A function that returns microseconds, days, or a decimal.
    """
    match kind.kind:
        case "timestamp":
            return lambda parts: timestamp(parts[1], parts[2])
        case "date":
            return lambda parts: days(parts[1], parts[2], parts[3])
        case "time":
            return lambda parts: time_of_day(parts[1], parts[2], parts[3], parts[4])
        case "decimal":
            return lambda parts: decimal(kind, parts[1], parts[3])


def timestamp(seconds: int, nanos: int) -> int:
    """Return the microseconds since 1970-01-01 UTC of a google.protobuf.Timestamp."""
    if not 0 <= nanos < _SECOND:
        raise ValueProblem(BAD_TIMESTAMP, f"needs nanos from 0 to 999999999, found {nanos}", "")
    micros = seconds * 1_000_000 + nanos // 1000
    if not FIRST_MICROSECOND <= micros <= LAST_MICROSECOND:
        raise ValueProblem(OUT_OF_RANGE, f"needs timestamptz in the years 0001 to 9999, found {seconds} seconds", "")
    _check_micros(nanos, "timestamptz")
    return micros


def days(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a google.type.Date; one without a year, a month or a day is refused."""
    try:
        return date(year, month, day).toordinal() - _EPOCH
    except (ValueError, OverflowError):
        found = f"year {year}, month {month}, day {day}"
        raise ValueProblem(BAD_DATE, f"needs a day of the calendar, found {found}", "") from None


def time_of_day(hours: int, minutes: int, seconds: int, nanos: int) -> int:
    """Return the microseconds since midnight of a google.type.TimeOfDay; 24:00:00 and leap seconds are refused."""
    if not (0 <= hours < 24 and 0 <= minutes < 60 and 0 <= seconds < 60 and 0 <= nanos < _SECOND):
        found = f"hours {hours}, minutes {minutes}, seconds {seconds}, nanos {nanos}"
        raise ValueProblem(BAD_TIME, f"needs a time of day, found {found}", "")
    _check_micros(nanos, "time")
    return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + nanos // 1000


def _check_micros(nanos: int, name: str) -> None:
    if nanos % 1000:
        raise ValueProblem(PRECISION_LOSS, f"needs {name} in microseconds, found {nanos} nanos", "")


def decimal(kind: Logical, unscaled: bytes, scale: int) -> Decimal:
    """Return a confluent.type.Decimal from its unscaled value, big-endian in two's complement, and its scale."""
    needed = f"needs decimal({kind.precision},{kind.scale}), found"
    number = int.from_bytes(unscaled, "big", signed=True)
    shift = kind.scale - scale
    if number == 0:
        return Decimal((0, (0,), -kind.scale))
    if abs(shift) > 400 or len(unscaled) > 160:
        beyond = shift > 0 or len(unscaled) > 160
        wrong = "too many digits before the point" if beyond else f"more than {kind.scale} digits after the point"
        raise ValueProblem(OUT_OF_RANGE if beyond else PRECISION_LOSS, f"{needed} one with {wrong}", "")
    exact = Decimal(number).scaleb(-scale, _WIDE_CONTEXT)
    if shift >= 0:
        number *= 10**shift
    else:
        number, rest = divmod(number, 10**-shift)
        if rest:
            found = f"{shown(str(exact))} with more than {kind.scale} digits after the point"
            raise ValueProblem(PRECISION_LOSS, f"{needed} {found}", "")
    if abs(number) >= 10**kind.precision:
        raise ValueProblem(OUT_OF_RANGE, f"{needed} {shown(str(exact))} with too many digits before the point", "")
    return Decimal(number).scaleb(-kind.scale, _WIDE_CONTEXT)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        found = f"0x{value[error.start]:02x} at byte {error.start} ({error.reason})"
        raise ValueProblem(INVALID_UTF8, f"needs UTF-8, found {found}", "") from None


def json_text(message: Any) -> str:
    """Return the canonical JSON text of a google.protobuf.Struct, Value or ListValue."""
    return canonical(json.dumps(_json(message), ensure_ascii=False).encode()).decode()


def _json(message: Any) -> Any:
    if len(UnknownFieldSet(message)):
        needed = message.DESCRIPTOR.full_name
        raise ValueProblem(WRONG_TYPE, f"needs {needed}, found a field that it does not have", "")
    match message.DESCRIPTOR.name:
        case "Struct":
            return {key: _json(value) for key, value in message.fields.items()}
        case "ListValue":
            return [_json(value) for value in message.values]
        case _:
            return _json_value(message)


def _json_value(value: Any) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number: float = value.number_value
            if not math.isfinite(number):
                raise ValueProblem(OUT_OF_RANGE, f"needs a number of JSON, found {number}", "")
            whole = number.is_integer() and abs(number) < 2**53 and (number or math.copysign(1, number) > 0)
            return int(number) if whole else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case "struct_value":
            return _json(value.struct_value)
        case "list_value":
            return _json(value.list_value)
        case _:
            return None
