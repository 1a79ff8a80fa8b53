"""Texts of dates and times in declared patterns, one text at a time: exactly what it says, or refused with the reason.

A local time that its zone does not have, as clocks go forward, or has twice, as they go back, is refused: either way
the text does not say which instant is meant.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from jobs.formats.columns import text_values
from jobs.formats.problems import (
    BAD_DATE,
    BAD_TIME,
    BAD_TIMESTAMP,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    ValueProblem,
    shown,
)
from jobs.schema.declared import Primitive
from jobs.schema.time_patterns import MONTHS, TimePattern, known_zone

EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times
_MICROSECOND = timedelta(microseconds=1)
_CLASSES = {"date": BAD_DATE, "time": BAD_TIME}
_MONTHS = {name: number for number, month in enumerate(MONTHS, 1) for name in (month, month[:3])}


def exact_time_text(text: str, declared: Primitive) -> int:
    """What a text says in the first of the declared forms in which it says anything.

    Returns:
        Days or microseconds after 1970-01-01 (UTC for a timestamptz), or microseconds after midnight.

    Raises:
        ValueProblem: In no form, with the reason of the first that it has the look of.
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
        return _checked(_utc(local, found, declared, text), declared, text)
    return _micros(local)


def _utc(local: datetime, found: dict[str, str], declared: Primitive, text: str) -> int:
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
