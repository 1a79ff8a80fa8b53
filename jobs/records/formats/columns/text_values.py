"""Text values: one text converted exactly to a decimal, a date, a time or bytes, or refused with the reason."""

from __future__ import annotations

import binascii
import re
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.formats.interface.problems import (
    BAD_BINARY,
    BAD_DATE,
    BAD_TIME,
    BAD_TIMESTAMP,
    BAD_UUID,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_LENGTH,
    WRONG_TYPE,
    ValueProblem,
    shown,
)

_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?"
    r"(?:(Z)|([+-])([0-9]{2})(?::?([0-9]{2}))?)?"
)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?")
_UUID = re.compile(r"[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)

FIRST_MICROSECOND = -62_135_596_800_000_000
"""0001-01-01T00:00:00, in microseconds after 1970-01-01."""
LAST_MICROSECOND = 253_402_300_799_999_999
"""9999-12-31T23:59:59.999999, in microseconds after 1970-01-01."""
FIRST_DAY = -719_162
LAST_DAY = 2_932_896
MICROSECONDS_PER_DAY = 86_400_000_000


def exact_decimal(text: str, precision: int, scale: int) -> int:
    """Return the unscaled value of a decimal(precision, scale): the number times 10**scale.

    Trailing zeros are dropped, so `1.500` fits scale 2.

    Raises:
        ValueProblem: wrong_type, out_of_range or precision_loss; never a rounded number.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueProblem(WRONG_TYPE, f"needs decimal({precision},{scale}), found the text {shown(text)}")
    sign, whole, fraction, power = match.group(1), match.group(2), match.group(3) or "", match.group(4) or "0"
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return 0
    # No mantissa can compensate an exponent of that many digits, and int() of a long text is slow.
    exponent = int(power) if len(power) <= 12 else (-(10**12) if power.startswith("-") else 10**12)
    exponent += len(digits) - len(significant) - len(fraction)
    if exponent < -scale:
        message = (
            f"needs decimal({precision},{scale}), found {shown(text)} with more than {scale} digits after the point"
        )
        raise ValueProblem(PRECISION_LOSS, message)
    if len(significant) + exponent > precision - scale:
        message = f"needs decimal({precision},{scale}), found {shown(text)} with too many digits before the point"
        raise ValueProblem(OUT_OF_RANGE, message)
    unscaled = int(significant) * 10 ** (exponent + scale)
    return -unscaled if sign else unscaled


def exact_timestamp(text: str, *, zoned: bool) -> int:
    """Convert an ISO 8601 text to microseconds after 1970-01-01 (in UTC if zoned, else as written).

    Raises:
        ValueProblem: bad_timestamp, out_of_range (years 0001 to 9999) or precision_loss (below a microsecond).
    """
    kind = "timestamptz" if zoned else "timestamp"
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        message = f"needs {kind} such as 2026-01-31T12:00:00{'Z' if zoned else ''}, found {shown(text)}"
        raise ValueProblem(BAD_TIMESTAMP, message)
    year, month, day, hour, minute, second, fraction, utc, sign, zone_hour, zone_minute = match.groups()
    if zoned and not (utc or sign):
        raise ValueProblem(BAD_TIMESTAMP, f"needs timestamptz with Z or an offset, found {shown(text)} without one")
    if not zoned and (utc or sign):
        raise ValueProblem(BAD_TIMESTAMP, f"needs timestamp without a zone, found {shown(text)} with one")
    micros, below = (fraction or "")[:6].ljust(6, "0"), (fraction or "")[6:]
    if below.strip("0"):
        raise ValueProblem(PRECISION_LOSS, f"needs {kind} in microseconds, found {shown(text)} with a finer fraction")
    if year == "0000":
        raise ValueProblem(OUT_OF_RANGE, f"needs {kind} in the years 0001 to 9999, found {shown(text)}")
    try:
        instant = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0), int(micros), tzinfo=UTC
        )
        if int(zone_hour or 0) > 23 or int(zone_minute or 0) > 59:
            raise ValueError(f"a zone offset of {zone_hour}:{zone_minute}")
    except ValueError as error:
        raise ValueProblem(BAD_TIMESTAMP, f"needs {kind}, found {shown(text)}: {error}") from None
    offset = (int(zone_hour or 0) * 60 + int(zone_minute or 0)) * 60_000_000
    result = (instant - _EPOCH) // _MICROSECOND + (offset if sign == "-" else -offset)
    if not FIRST_MICROSECOND <= result <= LAST_MICROSECOND:
        raise ValueProblem(OUT_OF_RANGE, f"needs {kind} in the years 0001 to 9999 (UTC), found {shown(text)}")
    return result


def looks_iso(text: str, name: str) -> bool:
    """Whether a text has the shape of an ISO 8601 date, timestamp or time, by the name of the type."""
    return ({"date": _DATE, "time": _TIME}.get(name, _TIMESTAMP)).fullmatch(text) is not None


def has_zone(text: str) -> bool:
    """Whether a text with the shape of an ISO 8601 timestamp has a zone."""
    match = _TIMESTAMP.fullmatch(text)
    return match is not None and bool(match.group(8) or match.group(9))


def exact_date(text: str) -> int:
    """Convert an ISO 8601 date to days after 1970-01-01.

    Raises:
        ValueProblem: bad_date, or out_of_range outside the years 0001 to 9999.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueProblem(BAD_DATE, f"needs date such as 2026-01-31, found {shown(text)}")
    if match.group(1) == "0000":
        raise ValueProblem(OUT_OF_RANGE, f"needs date in the years 0001 to 9999, found {shown(text)}")
    try:
        day = date(int(match.group(1)), int(match.group(2)), int(match.group(3)))
    except ValueError as error:
        raise ValueProblem(BAD_DATE, f"needs date, found {shown(text)}: {error}") from None
    return (day - _EPOCH.date()).days


def exact_time(text: str) -> int:
    """Convert an ISO 8601 time of day to microseconds after midnight.

    Raises:
        ValueProblem: bad_time, or precision_loss below a microsecond.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueProblem(BAD_TIME, f"needs time such as 23:59:59, found {shown(text)}")
    hour, minute, second, fraction = match.groups()
    micros, below = (fraction or "")[:6].ljust(6, "0"), (fraction or "")[6:]
    if below.strip("0"):
        raise ValueProblem(PRECISION_LOSS, f"needs time in microseconds, found {shown(text)} with a finer fraction")
    try:
        found = time(int(hour), int(minute), int(second or 0))
    except ValueError as error:
        raise ValueProblem(BAD_TIME, f"needs time, found {shown(text)}: {error}") from None
    return (found.hour * 3600 + found.minute * 60 + found.second) * 1_000_000 + int(micros)


def exact_uuid(text: str) -> bytes:
    """Convert the canonical text of a UUID (8-4-4-4-12 hexadecimal digits in either case) to bytes.

    Raises:
        ValueProblem: bad_uuid.
    """
    if not _UUID.fullmatch(text):
        example = "0f8fad5b-d9cb-469f-a165-70867728950e"
        raise ValueProblem(BAD_UUID, f"needs uuid such as {example}, found {shown(text)}")
    return bytes.fromhex(text.replace("-", ""))


def exact_length(data: bytes, length: int) -> bytes:
    """Return bytes unchanged; refuse another length than that of the fixed.

    Raises:
        ValueProblem: wrong_length.
    """
    if len(data) != length:
        raise ValueProblem(WRONG_LENGTH, f"needs {length} bytes, found {len(data)}")
    return data


def exact_base64(text: str) -> bytes:
    """Convert a base64 text in canonical form (standard alphabet, padded, no line breaks) to bytes.

    Raises:
        ValueProblem: bad_binary.
    """
    try:
        raw = text.encode("ascii")
        data = binascii.a2b_base64(raw, strict_mode=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise ValueProblem(BAD_BINARY, f"needs binary as base64, found {shown(text)}: {_reason(error)}") from None
    if binascii.b2a_base64(data, newline=False) != raw:
        raise ValueProblem(BAD_BINARY, f"needs binary as base64, found {shown(text)}, which has bits left over")
    return data


def exact_unscaled(text: str, precision: int, scale: int) -> int:
    """Convert a base64 text of big-endian two's complement bytes to the unscaled number.

    Raises:
        ValueProblem: bad_binary, or out_of_range for more digits than the precision.
    """
    needed = f"decimal({precision},{scale})"
    try:
        data = exact_base64(text)
    except ValueProblem:
        data = b""
    if not data:
        raise ValueProblem(BAD_BINARY, f"needs {needed} as base64 of its unscaled value, found {shown(text)}")
    number = int.from_bytes(data, signed=True)
    if abs(number) >= 10**precision:
        raise ValueProblem(OUT_OF_RANGE, f"needs {needed}, found {shown(text)}, a number with more digits")
    return number


def exact_hex(text: str) -> bytes:
    """Convert a hexadecimal text, in upper or lower case, to bytes.

    Raises:
        ValueProblem: bad_binary.
    """
    try:
        return binascii.unhexlify(text)
    except (binascii.Error, ValueError) as error:
        raise ValueProblem(BAD_BINARY, f"needs binary as hex, found {shown(text)}: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return "it has other characters" if isinstance(error, UnicodeEncodeError) else str(error)


BEYOND_YEARS = "the time is beyond the years 0001 to 9999"
_MICROS_PER = {"s": 1_000_000, "ms": 1_000, "us": 1}


def beyond_years(times: pa.Array) -> pa.BooleanArray:
    """Return a mask of the dates or timestamps beyond the years 0001 to 9999; false for null."""
    if pa.types.is_date32(times.type):
        numbers, first, last = times.cast(pa.int32()), FIRST_DAY, LAST_DAY
    elif (per := _MICROS_PER.get(times.type.unit)) is not None:
        numbers, first, last = times.cast(pa.int64()), FIRST_MICROSECOND // per, LAST_MICROSECOND // per
    else:
        # 64 bits of nanoseconds end in the year 2262.
        return pa.repeat(pa.scalar(False), len(times))
    return pc.fill_null(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)), False)


def within_years(times: pa.Array) -> pa.Array:
    """Return the dates or timestamps with null beyond the years 0001 to 9999."""
    return pc.if_else(beyond_years(times), pa.scalar(None, times.type), times)


def refuse_beyond_years(values: pa.Array, path: str) -> None:
    """Refuse dates and timestamps beyond the years 0001 to 9999, even within structs, lists and maps.

    Args:
        path: JSON path of the values.

    Raises:
        ValueProblem: A value is beyond these years.
    """
    kind = values.type
    if not _has_time(kind):
        return
    if pa.types.is_struct(kind):
        # Unlike `field()`, `flatten()` gives null for fields of null structs.
        for field, child in zip(kind, values.flatten(), strict=True):
            refuse_beyond_years(child, f"{path}.{field.name}")
    elif pa.types.is_map(kind):
        start, stop = values.offsets[0].as_py(), values.offsets[-1].as_py()
        refuse_beyond_years(values.keys[start:stop], f"{path}.key")
        refuse_beyond_years(values.items[start:stop], f"{path}.value")
    elif pa.types.is_nested(kind):
        refuse_beyond_years(values.flatten(), f"{path}[]")
    elif pc.any(beyond_years(values), min_count=0).as_py():
        raise ValueProblem(OUT_OF_RANGE, "needs a time in the years 0001 to 9999, found one beyond", path)


@lru_cache(maxsize=1024)
def _has_time(kind: pa.DataType) -> bool:
    """Whether a type contains a date or a timestamp."""
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        return True
    return pa.types.is_nested(kind) and any(_has_time(kind.field(index).type) for index in range(kind.num_fields))
