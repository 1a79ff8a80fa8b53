"""Times from texts in declared patterns: converted exactly, in bulk or one at a time, or refused.


A local time that its zone does not have, as clocks go forward, or has twice, as they go back, is refused: either way
the text does not say which instant is meant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from jobs.records.formats.columns import text_values
from jobs.records.formats.columns.text_columns import Leaf, one_by_one
from jobs.records.formats.interface.problems import (
    BAD_DATE,
    BAD_TIME,
    BAD_TIMESTAMP,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    BadValue,
    ValueProblem,
    shown,
)
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import Primitive
from jobs.records.schema.time_patterns import MONTHS, TimePattern, known_zone

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times
_CLASSES = {"date": BAD_DATE, "time": BAD_TIME}
_MONTHS = {name: number for number, month in enumerate(MONTHS, 1) for name in (month, month[:3])}


def exact_time_text(text: str, declared: Primitive) -> int:
    """Convert a text by the first declared pattern that it fits.

    Returns:
        Days or microseconds after 1970-01-01 (UTC for a timestamptz), or microseconds after midnight.

    Raises:
        ValueProblem: The text fits no pattern; the reason is that of the first pattern whose shape it has.
    """
    texts = declared.texts
    assert texts is not None
    refused: ValueProblem | None = None
    for form in texts.forms:
        if not (text_values.looks_iso(text, declared.name) if form is None else form.regex.fullmatch(text)):
            continue
        try:
            return _iso(text, declared) if form is None else _by_pattern(text, form, declared)
        except ValueProblem as problem:
            refused = refused or problem
    raise refused or _problem(declared, text)


def _problem(declared: Primitive, text: str, reason: str = "", error_class: str | None = None) -> ValueProblem:
    message = f"needs {declared}, found {shown(text)}" + (f": {reason}" if reason else "")
    return ValueProblem(error_class or _CLASSES.get(declared.name, BAD_TIMESTAMP), message)


def _iso(text: str, declared: Primitive) -> int:
    match declared.name:
        case "date":
            return text_values.exact_date(text)
        case "time":
            return text_values.exact_time(text)
        case "timestamp":
            return text_values.exact_timestamp(text, zoned=False)
    zone = declared.texts and declared.texts.zone
    if zone is None or text_values.has_zone(text):
        return text_values.exact_timestamp(text, zoned=True)
    local = text_values.exact_timestamp(text, zoned=False)
    return _checked(_in_zone(EPOCH + local * _MICROSECOND, known_zone(zone), declared, text), declared, text)


def _by_pattern(text: str, form: TimePattern, declared: Primitive) -> int:
    match = form.regex.fullmatch(text)
    found = match.groupdict() if match else {}
    fraction = found.get("S") or ""
    if fraction[6:].strip("0"):
        raise _problem(declared, text, "it is finer than microseconds", PRECISION_LOSS)
    hour = int(found.get("H") or 0)
    if "h" in found:
        twelve = int(found["h"])
        if not 1 <= twelve <= 12:
            raise _problem(declared, text, "hour must be in 1..12")
        hour = twelve % 12 + (12 if found["a"] == "PM" else 0)
    year, month = found.get("y") or "1970", found.get("M") or "1"
    if year == "0000":
        raise _problem(declared, text, "it is before the year 0001", OUT_OF_RANGE)
    try:
        local = EPOCH.replace(
            int(year),
            _MONTHS.get(month) or int(month),
            int(found.get("d") or 1),
            hour,
            int(found.get("m") or 0),
            int(found.get("s") or 0),
            int(fraction[:6].ljust(6, "0")),
        )
    except ValueError as error:
        raise _problem(declared, text, str(error)) from None
    if declared.name == "date":
        return (local - EPOCH).days
    if declared.name == "timestamptz":
        return _checked(_utc_of_text(local, found, declared, text), declared, text)
    return _micros(local)


def _utc_of_text(local: datetime, found: dict[str, str], declared: Primitive, text: str) -> int:
    offset = found.get("X") or found.get("x") or found.get("Z")
    if offset is not None:
        digits = offset[1:].replace(":", "").ljust(4, "0")
        hours, minutes = int(digits[:2]), int(digits[2:])
        if hours > 23 or minutes > 59:
            raise _problem(declared, text, f"a zone offset of {hours:02d}:{minutes:02d}")
        ahead = timedelta(hours=hours, minutes=minutes)
        return _micros(local) - (-ahead if offset[0] == "-" else ahead) // _MICROSECOND
    name = found.get("V") or (declared.texts and declared.texts.zone) or "UTC"
    zone = known_zone("UTC" if name == "Z" else name)
    if zone is None:
        raise _problem(declared, text, "there is no such time zone")
    return _in_zone(local, zone, declared, text)


def _micros(local: datetime) -> int:
    return (local - EPOCH) // _MICROSECOND


def _in_zone(local: datetime, zone: ZoneInfo | None, declared: Primitive, text: str) -> int:
    earlier = local.replace(tzinfo=zone or UTC).utcoffset() or timedelta()
    later = local.replace(tzinfo=zone or UTC, fold=1).utcoffset() or timedelta()
    if earlier < later:
        raise _problem(declared, text, "there is no such time in the zone: clocks go forward")
    if earlier > later:
        raise _problem(declared, text, "there are two such times in the zone: clocks go back")
    return _micros(local) - earlier // _MICROSECOND


def _checked(micros: int, declared: Primitive, text: str) -> int:
    if not text_values.FIRST_MICROSECOND <= micros <= text_values.LAST_MICROSECOND:
        raise _problem(declared, text, "it is not in the years 0001 to 9999 (UTC)", OUT_OF_RANGE)
    return micros


Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_SHORT = 32
_SIDE_BY_SIDE = frozenset("yMdHmsS")
_QUARTER = 900_000_000
_MICROSECOND = timedelta(microseconds=1)
_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Positions of the digits in a pattern.

    Attributes:
        fixed: Positions without digits, and their bytes.
        digits: Positions of each letter, the most significant first.
    """

    width: int
    fixed: tuple[npt.NDArray[np.intp], npt.NDArray[np.uint8]]
    digits: dict[str, npt.NDArray[np.intp]]


def pattern_times(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Convert texts in the declared patterns to dates, times or timestamps."""
    storage = pa.int32() if declared.name == "date" else pa.int64()
    target = arrow_type(declared)

    def one(each: str) -> int:
        return exact_time_text(each, declared)

    assert declared.texts is not None
    first = declared.texts.forms[0]
    layout = None if first is None else _layout(first)
    _, offsets, data = text.buffers()
    if layout is None or len(text) <= _SHORT or data is None:
        return one_by_one(text.to_pylist(), target, one, storage)
    bounds = np.frombuffer(offsets, np.int32)[text.offset : text.offset + len(text) + 1].astype(np.int64)
    null = text.is_null().to_numpy(zero_copy_only=False)
    fit = (np.diff(bounds) == layout.width) & ~null
    values, good = _read(np.frombuffer(data, np.uint8), bounds[:-1][fit], layout, declared)
    numbers = np.zeros(len(text), np.int64)
    numbers[fit] = values
    fit[fit] = good
    others = np.flatnonzero(~fit & ~null)
    if not len(others):
        return pa.array(numbers, mask=null).cast(storage).cast(target), []
    rest, refused = one_by_one(text.take(pa.array(others)).to_pylist(), target, one, storage)
    unread = rest.is_null().to_numpy(zero_copy_only=False)
    numbers[others[~unread]] = rest.drop_null().view(storage).to_numpy()
    null[others[unread]] = True
    bad = [BadValue(int(others[each.index]), each.error_class, each.message) for each in refused]
    return pa.array(numbers, mask=null).cast(storage).cast(target), bad


@lru_cache(maxsize=256)
def _layout(pattern: TimePattern) -> _Layout | None:
    if not pattern.letters <= _SIDE_BY_SIDE or any(
        part.variable or (part.letter and not part.number) for part in pattern.parts
    ):
        return None
    at, places, fixed, digits = 0, list[int](), bytearray(), dict[str, npt.NDArray[np.intp]]()
    for part in pattern.parts:
        written = part.text.encode()
        size = part.count if part.letter else len(written)
        if part.letter:
            digits[part.letter] = np.arange(at, at + size)
        else:
            places += range(at, at + size)
            fixed += written
        at += size
    return _Layout(at, (np.array(places, np.intp), np.frombuffer(bytes(fixed), np.uint8)), digits)


def _read(data: npt.NDArray[np.uint8], starts: Numbers, layout: _Layout, declared: Primitive) -> tuple[Numbers, Mask]:
    """Return the values of texts with the layout's width, and the mask of those that were read."""
    table = data[starts[:, None] + np.arange(layout.width)]
    places, fixed = layout.fixed
    good = (table[:, places] == fixed).all(axis=1)
    found: dict[str, Numbers] = {}
    for letter, where in layout.digits.items():
        each = table[:, where] - np.uint8(ord("0"))
        good &= (each <= 9).all(axis=1)
        number = np.zeros(len(starts), np.int64)
        for column in range(each.shape[1]):
            number = number * 10 + each[:, column]
        found[letter] = number
    zeros = np.zeros(len(starts), np.int64)
    hour, minute, second = (found.get(letter, zeros) for letter in "Hms")
    good &= (hour < 24) & (minute < 60) & (second < 60)
    micros = (hour * 3600 + minute * 60 + second) * 1_000_000
    if "S" in found:
        size = len(layout.digits["S"])
        exact, finer = (found["S"] * 10 ** (6 - size), zeros) if size <= 6 else np.divmod(found["S"], 10 ** (size - 6))
        micros, good = micros + exact, good & (finer == 0)
    if declared.name == "time":
        return micros, good
    days, known = _days(found["y"], found["M"], found["d"])
    good &= known
    if declared.name == "date":
        return days, good
    micros += days * text_values.MICROSECONDS_PER_DAY
    zone = declared.texts and declared.texts.zone
    if declared.name == "timestamptz" and zone is not None:
        micros[~good] = 0
        micros, known = _utc(micros, zone)
        good &= known & (micros >= text_values.FIRST_MICROSECOND) & (micros <= text_values.LAST_MICROSECOND)
    return micros, good


def _days(year: Numbers, month: Numbers, day: Numbers) -> tuple[Numbers, Mask]:
    """Return days after 1970-01-01, and the mask of dates that exist."""
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last = _DAYS[np.clip(month, 0, 12)] + (leap & (month == 2))
    good = (year >= 1) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= last)
    # Years begin in March, so that the leap day is the last day.
    shifted = year - (month <= 2)
    of_year = (153 * (month + np.where(month > 2, -3, 9)) + 2) // 5 + day - 1
    return shifted * 365 + shifted // 4 - shifted // 100 + shifted // 400 + of_year - 719_468, good


def _utc(local: Numbers, zone: str) -> tuple[Numbers, Mask]:
    """Return the instants of local times in microseconds, and the mask of certain ones: no clock change is near."""
    quarters, which = np.unique(local // _QUARTER, return_inverse=True)
    found = [_offset(zone, quarter) for quarter in quarters.tolist()]
    offsets = np.array([0 if each is None else each for each in found], np.int64)
    certain = np.array([each is not None for each in found], np.bool_)
    return local - offsets[which], certain[which]


@lru_cache(maxsize=65536)
def _offset(name: str, quarter: int) -> int | None:
    """Return a zone's UTC offset in a quarter of an hour of its local time, in microseconds; None if it changes there.

    Both ends are compared, each with `fold` 0 and 1: a change within would show at one of them.
    """
    zone = known_zone(name)
    begin = EPOCH + quarter * _QUARTER * _MICROSECOND
    end = begin + (_QUARTER - 1) * _MICROSECOND
    offsets = {_ahead(each.replace(tzinfo=zone, fold=fold)) for each in (begin, end) for fold in (0, 1)}
    return offsets.pop() if zone is not None and len(offsets) == 1 else None


def _ahead(local: datetime) -> int:
    return (local.utcoffset() or timedelta()) // _MICROSECOND
