"""Difference of two values of one column, and the reason for it: what a sink is known to do to values. Pure.

Times are numbers here, as Arrow holds them: microseconds, nanoseconds or days since 1970, by the Iceberg type. So a
year that Python has no date for can be compared as well.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Literal, TypeAlias

from pyiceberg import types as ice

Reason: TypeAlias = Literal[
    "wrapped",
    "fraction_cut",
    "rounded",
    "float_precision",
    "boolean_text",
    "zone_dropped",
    "time_unit",
    "time_cut",
    "time_form",
    "null_to_value",
    "value_to_null",
    "json_text",
    "other_form",
    "base64",
    "case",
    "field_missing",
    "length",
    "other",
]
REASONS: Mapping[Reason, str] = {
    "wrapped": "a number beyond the column's bits wrapped around",
    "fraction_cut": "the fraction was cut off",
    "rounded": "rounded to the column's scale",
    "float_precision": "narrowed to a floating-point number",
    "boolean_text": "a text other than true became false",
    "zone_dropped": "the offset of the text's time zone was dropped",
    "time_unit": "a number of another unit was read as milliseconds",
    "time_cut": "fractions of a second were cut off",
    "time_form": "the same time as a number, text or date",
    "null_to_value": "null in the record, a value in the table: a field's default, mostly",
    "value_to_null": "a value in the record, null in the table",
    "json_text": "an object or list became a text of JSON",
    "other_form": "the same value as another type",
    "base64": "the same bytes as Base64",
    "case": "the same text in other case or with other blanks",
    "field_missing": "a nested field that one side lacks",
    "length": "lists or maps of different lengths",
    "other": "another value",
}
"""What each reason means, from the frazil row to the row of the other table."""

SAME_MEANING: frozenset[Reason] = frozenset({"other_form", "time_form"})
"""Reasons that make no row another one: the column has another type, and the value means the same."""

_MICROS_OF_DAY = 86_400_000_000
_QUARTER = 900_000_000
_LONGEST_OFFSET = 18 * 3_600_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ZONED = (ice.TimestamptzType, ice.TimestamptzNanoType)
_TIMESTAMPS = (ice.TimestampType, ice.TimestampNanoType, *_ZONED)
_NANOS = (ice.TimestampNanoType, ice.TimestamptzNanoType)


@dataclass(frozen=True, slots=True)
class ValueDifference:
    """Two values that differ.

    Attributes:
        path: Column, with the fields below it: `address.zip`, `items[].price`.
        ours: Value that frazil makes, as Arrow holds it.
        theirs: Value that the table holds.
        our_type: Iceberg type of `ours`; None if it is not known.
        their_type: Iceberg type of `theirs`.
    """

    path: str
    reason: Reason
    ours: Any
    theirs: Any
    our_type: ice.IcebergType | None = None
    their_type: ice.IcebergType | None = None


def value_differences(
    path: str, ours: Any, theirs: Any, our_type: ice.IcebergType | None, their_type: ice.IcebergType | None
) -> Iterator[ValueDifference]:
    """All differences between two values, nested ones by their own paths; none if they mean the same.

    Args:
        path: Name of the column.
        our_type: Iceberg type of `ours`; None for a value as JSON holds it.
    """
    if ours is not None and theirs is not None:
        match our_type, their_type:
            case ice.StructType(), ice.StructType():
                yield from _struct_differences(path, ours, theirs, our_type, their_type)
                return
            case ice.ListType(), ice.ListType():
                if len(ours) == len(theirs):
                    for mine, other in zip(ours, theirs, strict=True):
                        yield from value_differences(
                            f"{path}[]", mine, other, our_type.element_type, their_type.element_type
                        )
                    return
                yield ValueDifference(path, "length", ours, theirs, our_type, their_type)
                return
            case ice.MapType(), ice.MapType():
                yield from _map_differences(path, ours, theirs, our_type, their_type)
                return
            case _:
                pass
    if (reason := reason_of(ours, theirs, our_type, their_type)) is not None:
        yield ValueDifference(path, reason, ours, theirs, our_type, their_type)


def reason_of(
    ours: Any, theirs: Any, our_type: ice.IcebergType | None, their_type: ice.IcebergType | None
) -> Reason | None:
    """Why two values differ; None if they mean the same. A nested value counts as a whole."""
    if ours is None or theirs is None:
        return None if ours is theirs else "null_to_value" if ours is None else "value_to_null"
    if _is_time(our_type) or _is_time(their_type):
        return _time_reason(ours, theirs, our_type, their_type)
    if isinstance(theirs, bool) or isinstance(ours, bool):
        return _boolean_reason(ours, theirs)
    if isinstance(ours, int | float | Decimal) and isinstance(theirs, int | float | Decimal):
        return _number_reason(ours, theirs, their_type)
    if isinstance(theirs, str):
        return _text_reason(ours, theirs)
    if isinstance(ours, str):
        return _from_text_reason(ours, theirs, their_type)
    return None if _plain(ours) == _plain(theirs) else "other"


def shown_value(value: Any, of_type: ice.IcebergType | None) -> Any:
    """A value with its times as ISO 8601 has them; a time that no calendar of Python reaches as its number."""
    match of_type:
        case _ if value is None:
            return None
        case ice.StructType() if isinstance(value, Mapping):
            return {each.name: shown_value(value.get(each.name), each.field_type) for each in of_type.fields}
        case ice.ListType() if isinstance(value, Sequence):
            return [shown_value(each, of_type.element_type) for each in value]
        case ice.MapType() if isinstance(value, Sequence):
            return {str(key): shown_value(inner, of_type.value_type) for key, inner in value}
        case _ if _is_time(of_type) and isinstance(value, int):
            return _time_text(value, of_type)
        case _:
            return value


def _struct_differences(
    path: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], our_type: ice.StructType, their_type: ice.StructType
) -> Iterator[ValueDifference]:
    others = {each.name.casefold(): each for each in their_type.fields}
    for field in our_type.fields:
        other = others.pop(field.name.casefold(), None)
        value, below = ours.get(field.name), f"{path}.{field.name}"
        if other is not None:
            yield from value_differences(below, value, theirs.get(other.name), field.field_type, other.field_type)
        elif value is not None:
            yield ValueDifference(below, "field_missing", value, None, field.field_type, None)
    for other in others.values():
        if (value := theirs.get(other.name)) is not None:
            yield ValueDifference(f"{path}.{other.name}", "field_missing", None, value, None, other.field_type)


def _map_differences(
    path: str,
    ours: Sequence[tuple[Any, Any]],
    theirs: Sequence[tuple[Any, Any]],
    our_type: ice.MapType,
    their_type: ice.MapType,
) -> Iterator[ValueDifference]:
    others = {str(key): value for key, value in theirs}
    if {str(key) for key, _ in ours} != {*others}:
        yield ValueDifference(path, "length", ours, theirs, our_type, their_type)
        return
    for key, value in ours:
        yield from value_differences(f"{path}{{}}", value, others[str(key)], our_type.value_type, their_type.value_type)


def _boolean_reason(ours: Any, theirs: Any) -> Reason | None:
    if isinstance(ours, bool) and isinstance(theirs, bool):
        return None if ours is theirs else "other"
    if isinstance(ours, str):
        word = ours.strip().lower()
        if (word == "true") is theirs:
            return "other_form" if word in ("true", "false") else "boolean_text"
    if isinstance(theirs, str) and theirs.lower() == str(ours).lower():
        return "other_form"
    return "other"


def _number_reason(ours: float | Decimal, theirs: float | Decimal, their_type: ice.IcebergType | None) -> Reason | None:
    if _same_number(ours, theirs):
        return None
    if isinstance(theirs, int):
        return _integer_reason(ours, theirs, their_type)
    if isinstance(theirs, float):
        near = (_as_float(ours), _as_single(_as_float(ours)))
        return "float_precision" if any(each is not None and _same_number(each, theirs) for each in near) else "other"
    if isinstance(ours, float):
        if not math.isfinite(ours):
            return "other"
        forms = (Decimal(str(ours)), Decimal(ours))
        if any(_same_number(form, theirs) for form in forms):
            return None
    else:
        forms = (Decimal(ours),)
    if any(_rounded(form, theirs) == theirs for form in forms):
        return "rounded"
    through_double = _as_float(ours)
    if through_double is not None and _rounded(Decimal(through_double), theirs) == theirs:
        return "float_precision"
    return "other"


def _integer_reason(ours: float | Decimal, theirs: int, their_type: ice.IcebergType | None) -> Reason:
    if isinstance(ours, float) and not math.isfinite(ours):
        return "other"
    whole = int(ours)
    if whole == theirs:
        return "fraction_cut"
    bits = (32,) if isinstance(their_type, ice.IntegerType) else (64, 32)
    return "wrapped" if any(_wrapped(whole, each) == theirs for each in bits) else "other"


def _text_reason(ours: Any, theirs: str) -> Reason | None:
    """Of a value that is a text in the table."""
    match ours:
        case str():
            if ours == theirs:
                return None
            return "case" if ours.split() == theirs.split() or ours.casefold() == theirs.casefold() else "other"
        case bytes():
            return "base64" if base64.b64encode(ours).decode() == theirs else "other"
        case int() | float() | Decimal():
            number = _number_of(theirs)
            return "other_form" if number is not None and _same_number(ours, number) else "other"
        case _:
            try:
                json.loads(theirs)
            except ValueError:
                return "other"
            return "json_text"


def _from_text_reason(ours: str, theirs: Any, their_type: ice.IcebergType | None) -> Reason | None:
    """Of a text that is something else in the table."""
    if isinstance(theirs, bytes):
        try:
            return "base64" if base64.b64decode(ours, validate=True) == theirs else "other"
        except (binascii.Error, ValueError):
            return "other"
    if isinstance(theirs, int | float | Decimal):
        number = _number_of(ours)
        return "other" if number is None else _number_reason(number, theirs, their_type) or "other_form"
    return "other"


def _time_reason(
    ours: Any, theirs: Any, our_type: ice.IcebergType | None, their_type: ice.IcebergType | None
) -> Reason | None:
    if isinstance(our_type, ice.TimeType) or isinstance(their_type, ice.TimeType):
        if type(our_type) is not type(their_type):
            return "other"
        return None if ours == theirs else "time_cut" if _is_cut(ours, theirs) else "other"
    if not (_is_time(our_type) and _is_time(their_type)):
        return _form_reason(ours, theirs, our_type, their_type)
    mine, other = _micros(ours, our_type), _micros(theirs, their_type)
    nanos = _nanos(ours, our_type), _nanos(theirs, their_type)
    days = isinstance(our_type, ice.DateType), isinstance(their_type, ice.DateType)
    if any(days):
        same_day = mine // _MICROS_OF_DAY == other // _MICROS_OF_DAY
        return ("time_form" if same_day else "other") if not all(days) else None if mine == other else "other"
    if nanos[0] == nanos[1]:
        return None
    return _instant_reason(mine, other)


def _instant_reason(mine: int, other: int) -> Reason:
    """Why two instants differ; microseconds since 1970."""
    if mine == other or _is_cut(mine, other):
        return "time_cut"
    for factor in (1_000, 1_000_000):
        if abs(other - mine * factor) < factor or abs(mine - other * factor) < factor:
            return "time_unit"
    shift = other - mine
    return "zone_dropped" if shift % _QUARTER == 0 and abs(shift) <= _LONGEST_OFFSET else "other"


def _form_reason(
    ours: Any, theirs: Any, our_type: ice.IcebergType | None, their_type: ice.IcebergType | None
) -> Reason | None:
    """Of a time on one side, and a number or text on the other."""
    time, its_type, form = (ours, our_type, theirs) if _is_time(our_type) else (theirs, their_type, ours)
    micros, forward = _micros(time, its_type), its_type is our_type
    if isinstance(form, str):
        read = _time_of_text(form)
        if read is None:
            return "other"
        instant, wall = read
        if micros in (instant, wall if not isinstance(its_type, _ZONED) else instant):
            dropped = not forward and instant != wall and micros == wall
            return "zone_dropped" if dropped else "time_form"
        return "other" if forward else _instant_reason(instant, micros)
    if not isinstance(form, int) or isinstance(form, bool):
        return "other"
    # Seconds, milliseconds, microseconds and nanoseconds since 1970.
    units = {form * 1_000_000, form * 1_000, form, form // 1_000}
    if isinstance(its_type, ice.DateType):
        return "time_form" if form == time or micros in {each - each % _MICROS_OF_DAY for each in units} else "other"
    if forward:
        return "time_form" if micros in units else "other"
    # A sink reads every number as milliseconds; from today's numbers one sees which unit was meant.
    if micros != form * 1_000:
        return "time_form" if micros in units else "other"
    return "time_form" if 10**11 <= abs(form) < 10**14 else "time_unit"


def _is_cut(ours: int, theirs: int) -> bool:
    return any(theirs == ours - ours % step for step in (1_000, 1_000_000))


def _is_time(of_type: ice.IcebergType | None) -> bool:
    return isinstance(of_type, (*_TIMESTAMPS, ice.DateType, ice.TimeType))


def _micros(value: int, of_type: ice.IcebergType | None) -> int:
    if isinstance(of_type, ice.DateType):
        return value * _MICROS_OF_DAY
    return value // 1_000 if isinstance(of_type, _NANOS) else value


def _nanos(value: int, of_type: ice.IcebergType | None) -> int:
    return value if isinstance(of_type, _NANOS) else _micros(value, of_type) * 1_000


def _time_of_text(text: str) -> tuple[int, int] | None:
    """The instant of a text, and what its clock shows without its offset; microseconds since 1970."""
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    wall = (read.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)
    return ((read - _EPOCH) // timedelta(microseconds=1) if read.tzinfo else wall), wall


def _time_text(value: int, of_type: ice.IcebergType | None) -> str:
    try:
        if isinstance(of_type, ice.DateType):
            return (date(1970, 1, 1) + timedelta(days=value)).isoformat()
        moment = _EPOCH + timedelta(microseconds=_micros(value, of_type))
    except OverflowError:
        years = 1970 + _micros(value, of_type) // (365_2425 * _MICROS_OF_DAY // 10_000)
        return f"about the year {years:,}"
    if isinstance(of_type, ice.TimeType):
        return moment.time().isoformat()
    return moment.isoformat() if isinstance(of_type, _ZONED) else moment.replace(tzinfo=None).isoformat()


def _same_number(first: float | Decimal, second: float | Decimal) -> bool:
    if first == second:
        return True
    return isinstance(first, float) and isinstance(second, float) and math.isnan(first) and math.isnan(second)


def _as_float(value: float | Decimal) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _as_single(value: float | None) -> float | None:
    """The nearest four-byte number, infinity beyond them."""
    if value is None:
        return None
    try:
        return struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def _rounded(value: Decimal, like: Decimal) -> Decimal | None:
    """Java: BigDecimal.setScale(scale, HALF_UP)."""
    try:
        return value.quantize(Decimal(1).scaleb(int(like.as_tuple().exponent)), rounding=ROUND_HALF_UP)
    except InvalidOperation:
        return None


def _wrapped(value: int, bits: int) -> int:
    """Java: Number.intValue, Number.longValue."""
    cut = value & ((1 << bits) - 1)
    return cut - (1 << bits) if cut >> (bits - 1) else cut


def _number_of(text: str) -> Decimal | None:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        return None
    return number if number.is_finite() else None


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray | memoryview) else value
