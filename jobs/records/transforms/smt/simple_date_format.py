"""Patterns of Java's SimpleDateFormat: it reads and writes times by them, in UTC and in English.

Java's class counts milliseconds where others have a fraction, accepts numbers of any length, carries a value beyond a
field's range into the next field, and ignores the rest behind the text that it knows. So each text is read together
with whether it means exactly the time that Java reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.schema.time_patterns import MONTHS, Part, TimePattern
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.timestamps import time_texts

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_NUMBER = re.compile(r"(-?[0-9]+)")
_BLANKS = re.compile(r"[ \t]*")
_OFFSETS = {
    "X1": re.compile(r"Z|([+-])([0-9]{2})"),
    "X2": re.compile(r"Z|([+-])([0-9]{2})([0-9]{2})"),
    "X3": re.compile(r"Z|([+-])([0-9]{2}):([0-9]{2})"),
}
# Java knows names other than those of UTC in its own words.
_ZONE = re.compile(
    r"([+-])([0-9]{2})([0-9]{2})|GMT(?![+-])|UTC|Coordinated Universal Time|GMT([+-])([0-9]{1,2}):([0-9]{2})",
    re.IGNORECASE,
)
_RANGES = {"h": (1, 12), "K": (0, 11), "k": (1, 24)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parsed_text(parts: Sequence[Part], text: str) -> tuple[int, bool] | None:
    """Return a text's milliseconds since 1970, and whether it means exactly that; None if it does not match."""
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
        # Of adjacent numbers a short last one is ambiguous; so is a short year.
        fixed = part.letter == "y" or (number > 0 and _is_number(part) and _is_number(parts[number - 1]))
        exact = exact and plain and start == at and not (fixed and end - at < part.count)
        if part.letter == "y" and part.count < 3 and end - start == 2:
            # The century would be guessed from the day on which the text is read.
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
    """Return the value of a field, its end, and whether it is written in the usual way."""
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
    # Three digits of a fraction are milliseconds; zeros are the same in any number.
    return value, match.end(), part.letter != "S" or len(match.group()) == 3 or value == 0


def _name(names: Sequence[str], text: str, at: int, *, short: bool = False) -> tuple[int, int, bool] | None:
    for number, name in enumerate(names):
        for written in (name, name[:3]) if short else (name,):
            if text[at : at + len(written)].casefold() == written.casefold():
                return number, at + len(written), True
    return None


def _offset(part: Part, text: str, at: int) -> tuple[int, int, bool] | None:
    """Read a zone's offset from UTC in minutes."""
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
    """Return the milliseconds of fields, and whether each is in its range; None beyond the years 1 to 9999."""
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
    """Return the hour of the day; 24, and 12 in a half of a day, are 0, and others go on counting."""
    if "H" in fields:
        return fields["H"]
    if "k" in fields:
        return 0 if fields["k"] == 24 else fields["k"]
    half = 12 * fields.get("a", 0)
    if "h" in fields:
        return (0 if fields["h"] == 12 else fields["h"]) + half
    return fields["K"] + half if "K" in fields else 0


_RUN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")
_MOST = {**dict.fromkeys("GyMLdDEuHkKhamsSzZ"), "X": 3}
_OF_WEEKS = frozenset("YwWF")
_TURN = 146_097 * 86_400_000
"""Milliseconds of 400 years, after which the calendar repeats, with its days of the week."""


@dataclass(frozen=True)
class SimpleDateFormat:
    """A pattern of SimpleDateFormat.

    Attributes:
        text: The pattern as it was written.
        parts: Its parts in their order.
    """

    text: str
    parts: tuple[Part, ...]

    @property
    def letters(self) -> frozenset[str]:
        """Return the letters of the pattern."""
        return frozenset(part.letter for part in self.parts if part.letter)

    @property
    def counts_milliseconds(self) -> bool:
        """Return whether an S looks like a fraction of another length than milliseconds, which it is not."""
        return any(part.letter == "S" and part.count != 3 for part in self.parts)

    @property
    def unreadable(self) -> str | None:
        """Return why the pattern cannot read texts; None if it can."""
        letters = self.letters
        if any(part.letter == "y" and part.count == 2 for part in self.parts):
            return "'yy' leaves the century to be guessed, by the day on which the text is read; write yyyy"
        if letters & set("Eu") and not letters & set("dD"):
            return "the day of a week is no day without d beside it"
        if "D" in letters and letters & set("MLd"):
            return "the day is given twice, by D and by M and d"
        return None

    def written(self, ms: pa.Array) -> pa.Array:
        """Return instants, in milliseconds since 1970, as texts."""
        instants, years = _calendar(ms)
        texts = [_written(part, instants, years) for part in self.parts]
        found = pc.binary_join_element_wise(*texts, "", "")
        return pc.if_else(ms.is_valid(), found, pa.scalar(None, pa.string())) if ms.null_count else found

    def miswritten(self, ms: pa.Array) -> pa.Array:
        """Return a mask of the instants whose milliseconds read as another fraction, such as 5 ms by S."""
        fraction = pc.millisecond(_calendar(ms)[0])
        wrong = pa.repeat(pa.scalar(False), len(ms))
        for part in self.parts:
            if part.letter == "S" and part.count != 3:
                zero = pc.equal(fraction, 0)
                right = zero if part.count > 3 else pc.or_(zero, pc.greater_equal(fraction, 100))
                wrong = pc.or_(wrong, pc.invert(right))
        return pc.fill_null(wrong, False)

    def parsed(self, text: str) -> tuple[int, bool] | None:
        """Return a text's milliseconds since 1970, and whether it means exactly that; None if it does not match."""
        return parsed_text(self.parts, text)


def simple_date_format(text: str, key: str) -> SimpleDateFormat:
    """Return the pattern of a text.

    Args:
        text: The pattern.
        key: The property with the pattern.

    Raises:
        TransformProblem: The text is no pattern, or has a letter that frazil does not support.
    """
    parts: list[Part] = []
    for run in _RUN.finditer(text):
        letters = run.group()
        if letters == "'":
            raise TransformProblem(f"the pattern '{text}' has a single quote that is never closed", (key,))
        if not run.group(2):
            quoted = run.group(1)
            parts.append(Part("", 0, letters if quoted is None else quoted.replace("''", "'") or "'"))
        elif letters[0] in _OF_WEEKS:
            said = "counts weeks, which begin on another day in each worker's language"
            raise TransformProblem(f"'{letters}' of the pattern '{text}' {said}: write the day", (key,))
        elif letters[0] not in _MOST or len(letters) > (_MOST[letters[0]] or len(letters)):
            raise TransformProblem(f"'{letters}' is no part of a pattern of SimpleDateFormat", (key,))
        else:
            parts.append(Part(letters[0], len(letters)))
    if not any(part.letter for part in parts):
        raise TransformProblem(f"the pattern '{text}' has no part of a time", (key,))
    return SimpleDateFormat(text, tuple(parts))


def _calendar(ms: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return timestamps at the same place of the calendar, in years that Arrow counts, and true years; 0 is 1 BC."""
    null = ms.is_null().to_numpy(zero_copy_only=False)
    turns, rest = np.divmod(pc.fill_null(ms, 0).to_numpy(), _TURN)
    instants = pa.array(rest * 1_000, mask=null).cast(pa.timestamp("us", tz="UTC"))
    return instants, pc.add(pc.year(instants), pa.array(turns * 400))


def _written(part: Part, instants: pa.Array, years: pa.Array) -> pa.Array | pa.Scalar:
    match part.letter:
        case "":
            return pa.scalar(part.text, pa.string())
        case "S":
            return _digits(pc.millisecond(instants), part.count)
        case "y":
            of_era = pc.if_else(pc.less(years, 1), pc.subtract(1, years), years)
            return _digits(_rest(of_era, 100) if part.count == 2 else of_era, part.count)
        case "D":
            return _digits(pc.day_of_year(instants), part.count)
        case "E":
            names = pa.array([name if part.count > 3 else name[:3] for name in DAYS], pa.string())
            return names.take(pc.day_of_week(instants))
        case "u":
            return _digits(pc.add(pc.day_of_week(instants), 1), part.count)
        case "k":
            hours = pc.hour(instants)
            return _digits(pc.if_else(pc.equal(hours, 0), 24, hours), part.count)
        case "K":
            return _digits(_rest(pc.hour(instants), 12), part.count)
        case "G":
            return pc.if_else(pc.less(years, 1), "BC", "AD")
        case "z":
            return pa.scalar("UTC" if part.count < 4 else "Coordinated Universal Time")
        case "Z":
            return pa.scalar("+0000")
        case "M" | "L":
            return _by_pattern(Part("M", min(part.count, 4)), instants)
        case "a":
            return _by_pattern(Part("a", 1), instants)
        case _:
            return _by_pattern(part, instants)


def _by_pattern(part: Part, instants: pa.Array) -> pa.Array:
    return time_texts(instants, TimePattern("", (part, Part("", 0, ""))), "UTC")[0]


def _rest(numbers: pa.Array, by: int) -> pa.Array:
    return pc.subtract(numbers, pc.multiply(pc.divide(numbers, by), by))


def _digits(numbers: pa.Array, count: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), count, "0")
