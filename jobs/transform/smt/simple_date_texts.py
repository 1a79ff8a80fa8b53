"""Texts parsed as Java's SimpleDateFormat parses them, in UTC and in English.

It counts milliseconds where others have a fraction, takes numbers of any length, carries what is beyond a field's range
into the next one, and ignores what stands behind the text that it knows. So each text is read with whether it says just
the time that Java makes of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from jobs.schema.time_patterns import MONTHS, Part

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBER = re.compile(r"(-?[0-9]+)")
_BLANKS = re.compile(r"[ \t]*")
_OFFSETS = {
    "X1": re.compile(r"Z|([+-])([0-9]{2})"),
    "X2": re.compile(r"Z|([+-])([0-9]{2})([0-9]{2})"),
    "X3": re.compile(r"Z|([+-])([0-9]{2}):([0-9]{2})"),
}
# Other names than those of UTC are known to Java in its own words.
_ZONE = re.compile(
    r"([+-])([0-9]{2})([0-9]{2})|GMT(?![+-])|UTC|Coordinated Universal Time|GMT([+-])([0-9]{1,2}):([0-9]{2})",
    re.IGNORECASE,
)
_RANGES = {"h": (1, 12), "K": (0, 11), "k": (1, 24)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parsed_text(parts: Sequence[Part], text: str) -> tuple[int, bool] | None:
    """Milliseconds since 1970 of a text, and whether it says just that; None where it is none.

    Args:
        parts: Of the pattern.
        text: What is read.
    """
    fields: dict[str, int] = {}
    at, exact = 0, True
    for number, part in enumerate(parts):
        if not part.letter:
            if not text.startswith(part.text, at):
                return None
            at += len(part.text)
            continue
        blanks = _BLANKS.match(text, at)
        start = blanks.end() if blanks else at
        found = _field(part, text, start, parts[number + 1] if number + 1 < len(parts) else None)
        if found is None:
            return None
        value, end, plain = found
        # Of numbers without anything between them, a short last one says nothing certain; nor does a short year.
        fixed = part.letter == "y" or (number > 0 and _is_number(part) and _is_number(parts[number - 1]))
        exact = exact and plain and start == at and not (fixed and end - at < part.count)
        if part.letter == "y" and part.count < 3 and end - start == 2:
            # The century would be guessed, by the day on which the text is read.
            return None
        at = end
        fields["M" if part.letter == "L" else part.letter] = value
    instant, ordinary = _instant(fields)
    if instant is None:
        return None
    offset = next((fields[letter] for letter in "XZz" if letter in fields), 0)
    return instant - offset * 60_000, exact and ordinary and at == len(text)


def _is_number(part: Part) -> bool:
    return part.letter in tuple("ydDHkKhmsSu") or (part.letter in ("M", "L") and part.count <= 2)


def _field(part: Part, text: str, at: int, following: Part | None) -> tuple[int, int, bool] | None:
    """The value of a field, where it ends, and whether it is written as one would."""
    match part.letter:
        case "X" | "Z" | "z":
            return _offset(part, text, at)
        case "a":
            return _name(("AM", "PM"), text, at)
        case "G":
            return _name(("BC", "AD"), text, at)
        case "E":
            return _name(DAYS, text, at, short=True)
        case "M" | "L" if part.count > 2:
            found = _name(MONTHS, text, at, short=True)
            return None if found is None else (found[0] + 1, *found[1:])
        case _:
            return _number(part, text, at, following)


def _number(part: Part, text: str, at: int, following: Part | None) -> tuple[int, int, bool] | None:
    if following is not None and _is_number(following):
        digits = text[at : at + part.count]
        return (int(digits), at + part.count, True) if digits.isascii() and digits.isdigit() else None
    match = _NUMBER.match(text, at)
    if match is None:
        return None
    value = int(match.group())
    # Three digits of a fraction are milliseconds; zeros are the same anyhow.
    return value, match.end(), part.letter != "S" or len(match.group()) == 3 or value == 0


def _name(names: Sequence[str], text: str, at: int, *, short: bool = False) -> tuple[int, int, bool] | None:
    for number, name in enumerate(names):
        for written in (name, name[:3]) if short else (name,):
            if text[at : at + len(written)].casefold() == written.casefold():
                return number, at + len(written), True
    return None


def _offset(part: Part, text: str, at: int) -> tuple[int, int, bool] | None:
    """Minutes that a zone is ahead of UTC."""
    match = (_OFFSETS[f"X{part.count}"] if part.letter == "X" else _ZONE).match(text, at)
    if match is None:
        return None
    said = [each for each in match.groups() if each is not None]
    if not said:
        return 0, match.end(), True
    hours, minutes = int(said[1]), int(said[2]) if len(said) > 2 else 0
    if hours > 23 or minutes > 59:
        return None
    ahead = hours * 60 + minutes
    return (-ahead if said[0] == "-" else ahead), match.end(), True


def _instant(fields: dict[str, int]) -> tuple[int | None, bool]:
    """Milliseconds of fields, and whether each is in its range; None beyond the years 1 to 9999."""
    if fields.get("G") == 0:
        return None, False
    hour = _hour(fields)
    year, month, day = fields.get("y", 1970), fields.get("M", 1), fields.get("D", fields.get("d", 1))
    months = year * 12 + month - 1
    finer = (fields.get("m", 0), fields.get("s", 0))
    try:
        start = datetime(months // 12, months % 12 + 1, 1, tzinfo=UTC)
        moment = start + timedelta(
            days=day - 1, hours=hour, minutes=finer[0], seconds=finer[1], milliseconds=fields.get("S", 0)
        )
    except (ValueError, OverflowError):
        return None, False
    found = (moment.year, moment.hour, moment.minute, moment.second)
    ordinary = found == (year, hour, *finer) and all(
        low <= fields[letter] <= high for letter, (low, high) in _RANGES.items() if letter in fields
    )
    of_month = moment.timetuple().tm_yday == day if "D" in fields else (moment.month, moment.day) == (month, day)
    weekdays = (fields.get("E", moment.weekday()), fields.get("u", moment.isoweekday()))
    right = weekdays == (moment.weekday(), moment.isoweekday())
    return (moment - _EPOCH) // timedelta(milliseconds=1), ordinary and of_month and right


def _hour(fields: dict[str, int]) -> int:
    """The hour of the day; 24 and, of a half of a day, 12 are 0, and others go on counting."""
    if "H" in fields:
        return fields["H"]
    if "k" in fields:
        return 0 if fields["k"] == 24 else fields["k"]
    half = 12 * fields.get("a", 0)
    if "h" in fields:
        return (0 if fields["h"] == 12 else fields["h"]) + half
    return fields["K"] + half if "K" in fields else 0
