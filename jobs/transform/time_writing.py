"""Writing of times: as texts in a pattern, and as numbers since 1970."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from jobs.expression.zone_times import local_times
from jobs.formats.columns.time_bounds import beyond_years
from jobs.formats.problems import OUT_OF_RANGE, PRECISION_LOSS, BadValue
from jobs.schema.time_patterns import MONTHS, Part, TimePattern
from jobs.transform.masks import nulled, rows_where

_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_MOST = (2**63 - 1) // 1_000


def epoch_numbers(array: pa.Array, unit: str) -> tuple[pa.Array, list[BadValue]]:
    """Timestamps as whole numbers of a unit since 1970, and those that are none.

    Args:
        array: In microseconds.
        unit: s, ms, us or ns.
    """
    micros = array.cast(pa.int64())
    if unit == "ns":
        bad = rows_where(pc.greater(pc.abs(micros), _MOST))
        kept = nulled(micros, bad)
        said = "needs nanoseconds in 64 bits, found a time beyond them"
        return pc.multiply_checked(kept, 1_000), [BadValue(each, OUT_OF_RANGE, said) for each in bad]
    per = _MICROS[unit]
    whole = pc.divide(micros, per)
    bad = rows_where(pc.not_equal(pc.multiply(whole, per), micros))
    said = f"needs a whole number of {unit}, found a time with a finer part"
    return nulled(whole, bad), [BadValue(each, PRECISION_LOSS, said) for each in bad]


def time_texts(array: pa.Array, pattern: TimePattern, zone: str) -> tuple[pa.Array, list[BadValue]]:
    """Times as texts in a pattern, without finer parts than it has, and those that it writes no year of.

    Args:
        array: Dates, times, or timestamps in microseconds.
        pattern: For their type.
        zone: In which those with a zone are written.
    """
    zoned = pa.types.is_timestamp(array.type) and array.type.tz is not None
    local = local_times(array, zone) if zoned else array
    texts = [_written(part, local, array, zone) for part in pattern.parts]
    bad = [] if pa.types.is_time(array.type) else rows_where(beyond_years(local))
    said = f"needs a time in the years 0001 to 9999 in {zone}, found another"
    return pc.binary_join_element_wise(*texts, ""), [BadValue(each, OUT_OF_RANGE, said) for each in bad]


def _written(part: Part, local: pa.Array, instants: pa.Array, zone: str) -> pa.Array | pa.Scalar:
    match part.letter:
        case "":
            return pa.scalar(part.text, pa.string())
        case "y":
            return _digits(pc.year(local), part.count)
        case "M" if part.count > 2:
            names = pa.array([name if part.count == 4 else name[:3] for name in MONTHS], pa.string())
            return names.take(pc.subtract(pc.month(local), 1))
        case "M":
            return _digits(pc.month(local), part.count)
        case "d":
            return _digits(pc.day(local), part.count)
        case "H":
            return _digits(_hour(local), part.count)
        case "h":
            hour = pc.subtract(_hour(local), pc.multiply(pc.divide(_hour(local), 12), 12))
            return _digits(pc.if_else(pc.equal(hour, 0), 12, hour), part.count)
        case "a":
            return pc.if_else(pc.less(_hour(local), 12), "AM", "PM")
        case "m":
            return _digits(pc.minute(local), part.count)
        case "s":
            return _digits(pc.second(local), part.count)
        case "S":
            micros = pc.add(pc.multiply(pc.millisecond(local), 1_000), pc.microsecond(local))
            six = _digits(micros, 6)
            return pc.utf8_slice_codeunits(pc.utf8_rpad(six, part.count, "0"), 0, part.count)
        case "V":
            return pc.if_else(local.is_valid(), pa.scalar(zone), pa.scalar(None, pa.string()))
        case _:
            return _offsets(part, local, instants)


def _hour(local: pa.Array) -> pa.Array:
    return pc.hour(local)


def _digits(numbers: pa.Array, count: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), count, "0")


def _offsets(part: Part, local: pa.Array, instants: pa.Array) -> pa.Array:
    """What the zone is ahead of UTC; each distinct difference is written once."""
    ahead = pc.divide(pc.subtract(local.cast(pa.int64()), instants.cast(pa.int64())), 60_000_000)
    encoded = pc.dictionary_encode(ahead)
    said = [_offset(part, each) for each in encoded.dictionary.to_pylist()]
    return pa.array(said, pa.string()).take(encoded.indices)


def _offset(part: Part, minutes: int) -> str:
    if part.letter == "X" and not minutes:
        return "Z"
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    if part.letter != "Z" and part.count == 1:
        return f"{sign}{hours:02}" + (f"{rest:02}" if rest else "")
    return f"{sign}{hours:02}{':' if part.count == 3 else ''}{rest:02}"
