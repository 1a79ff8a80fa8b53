"""Time patterns: the written form of a date or a time, in the letters of Java's DateTimeFormatter.

The known letters are yyyy (or uuuu), MM, M, MMM, MMMM, dd, d, HH, H, hh and h with a, mm, m, ss, s, S for each digit of
a fraction, and for a zone X, XX, XXX, x, xx, xxx, Z, VV. Other letters stand in single quotes; other characters stand
for themselves.
"""

from __future__ import annotations

import itertools
import re
import zoneinfo
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
TIME_TYPES = ("date", "timestamp", "timestamptz", "time")

_RUN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+|'")
_COUNTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys("yu", (4,)),
    "M": (1, 2, 3, 4),
    **dict.fromkeys("dHhms", (1, 2)),
    "a": (1,),
    "S": tuple(range(1, 19)),
    **dict.fromkeys("Xx", (1, 2, 3)),
    "Z": (1,),
    "V": (2,),
}
_MEANT = {"Y": "yyyy", "D": "dd", "K": "hh", "k": "HH", "n": "SSSSSSSSS", "z": "VV", "O": "XXX", "L": "MM"}
_OFFSETS = {
    "X1": "Z|[+-][0-9]{2}(?:[0-9]{2})?",
    "X2": "Z|[+-][0-9]{4}",
    "X3": "Z|[+-][0-9]{2}:[0-9]{2}",
    "x1": "[+-][0-9]{2}(?:[0-9]{2})?",
    "x2": "[+-][0-9]{4}",
    "x3": "[+-][0-9]{2}:[0-9]{2}",
    "Z1": "[+-][0-9]{4}",
    "V2": "[A-Za-z][A-Za-z0-9_+/-]*",
}
_ZONE, _NUMBERS = "XxZV", "yMdHhmsS"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a pattern: a repeated letter, or a text that stands for itself (`letter` is empty)."""

    letter: str
    count: int
    text: str = ""

    @property
    def variable(self) -> bool:
        """Return whether it is a number of one or two digits."""
        return self.letter in "MdHhms" and self.count == 1 and bool(self.letter)

    @property
    def number(self) -> bool:
        """Return whether it is written in digits."""
        return bool(self.letter) and self.letter in _NUMBERS and not (self.letter == "M" and self.count > 2)


@dataclass(frozen=True)
class TimePattern:
    """A pattern of texts.

    Attributes:
        text: The pattern as it was written.
        parts: Its parts in their order; `u` is stored as `y`.
    """

    text: str
    parts: tuple[Part, ...]

    @cached_property
    def letters(self) -> frozenset[str]:
        """Return the letters of the pattern."""
        return frozenset(part.letter for part in self.parts if part.letter)

    @property
    def zoned(self) -> bool:
        """Return whether a text of the pattern contains its zone."""
        return bool(self.letters & set(_ZONE))

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Return the regular expression for texts of the pattern, with a group for each letter."""
        return re.compile("".join(map(_regex, self.parts)))


def _regex(part: Part) -> str:
    letter, count = part.letter, part.count
    if not letter:
        return re.escape(part.text)
    if letter == "a":
        inside = "AM|PM"
    elif letter in _ZONE:
        inside = _OFFSETS[f"{letter}{count}"]
    elif letter == "M" and count > 2:
        inside = "|".join(month if count == 4 else month[:3] for month in MONTHS)
    else:
        inside = "[0-9]{1,2}" if part.variable else f"[0-9]{{{count}}}"
    return f"(?P<{letter}>{inside})"


@lru_cache(maxsize=256)
def parse_pattern(text: str, kind: str) -> TimePattern:
    """Read a pattern for texts of a type.

    Args:
        kind: date, timestamp, timestamptz or time.

    Raises:
        ValueError: The pattern is wrong, as the message says.
    """
    parts: list[Part] = []
    for run in _RUN.finditer(text):
        if run.group(2):
            parts.append(_letters(run.group(), [part.letter for part in parts]))
        elif run.group() == "'":
            raise ValueError(f"the pattern '{text}' has a single quote that is never closed")
        else:
            quoted = run.group(1)
            written = run.group() if quoted is None else quoted.replace("''", "'") or "'"
            parts.append(Part("", 0, written))
    for before, after in itertools.pairwise(parts):
        if before.variable and after.number:
            doubled = before.letter * 2
            raise ValueError(f"'{before.letter}' before another number does not say where it ends; write {doubled}")
    pattern = TimePattern(text, tuple(parts))
    if problem := _lacking(pattern, kind):
        raise ValueError(f"the pattern '{text}' {problem}")
    return pattern


def _letters(run: str, before: list[str]) -> Part:
    letter, count = run[0], len(run)
    if letter not in _COUNTS:
        known = "known are yyyy, MM, dd, HH, hh, a, mm, ss, S, XXX, Z and VV"
        meant = f"did you mean {_MEANT[letter]}?" if letter in _MEANT else f"{known}."
        raise ValueError(f"'{run}' is no letter of a pattern; {meant} A text that stands for itself is put in quotes")
    letter = "y" if letter == "u" else letter
    if count not in _COUNTS[letter]:
        ways = ", ".join(letter * each for each in _COUNTS[letter][:4])
        raise ValueError(f"'{run}' is not known; write {ways}")
    if letter in before or (letter in _ZONE and set(before) & set(_ZONE)):
        raise ValueError(f"'{run}' repeats a part of the pattern")
    return Part(letter, count)


def _lacking(pattern: TimePattern, kind: str) -> str | None:
    letters = pattern.letters
    needed = {"time": ""}.get(kind, "yMd")
    if missing := [each for each in needed if each not in letters]:
        return f"has no {', '.join({'y': 'year (yyyy)', 'M': 'month (MM)', 'd': 'day (dd)'}[each] for each in missing)}"
    if kind == "time" and letters & set("yMd"):
        return "has a date, which a time has not"
    if kind == "date" and letters & set("HhamsS" + _ZONE):
        return "has a time, which a date has not"
    if "H" in letters and letters & {"h", "a"}:
        return "has both H and h, or a"
    if ("h" in letters) != ("a" in letters):
        return "needs h and a together: hours from 1 to 12, with AM or PM"
    if kind == "time" and not letters & {"H", "h"}:
        return "has no hour (HH)"
    for finer, coarser in (("S", "s"), ("s", "m"), ("m", "Hh")):
        if finer in letters and not letters & set(coarser):
            return f"has {finer} without {coarser[0]}"
    if pattern.zoned and kind != "timestamptz":
        return f"has a zone, which a {kind} has not; declare it as timestamptz"
    return None


@dataclass(frozen=True, slots=True)
class TimeTexts:
    """The forms in which a text may write a date or a time.

    Attributes:
        forms: Forms in the order in which they are tried; None is ISO 8601.
        zone: Zone of texts without one, for a timestamptz.
    """

    forms: tuple[TimePattern | None, ...]
    zone: str | None = None

    def __str__(self) -> str:
        each = ("iso" if form is None else "'" + form.text.replace("'", "''") + "'" for form in self.forms)
        return " or ".join(each) + (f" in {self.zone}" if self.zone else "")


def zone_problem(texts: TimeTexts, kind: str) -> str | None:
    """Return what is wrong with the zone of texts; None if nothing."""
    zone, patterns = texts.zone, [form for form in texts.forms if form is not None]
    if zone is None:
        without = next((form for form in patterns if kind == "timestamptz" and not form.zoned), None)
        if without is None:
            return None
        return f"the pattern '{without.text}' does not say the zone; write XXX, or 'in' and a zone such as Asia/Tokyo"
    if kind != "timestamptz":
        return f"a {kind} has no zone; drop 'in {zone}', or declare it as timestamptz"
    if len(patterns) == len(texts.forms) and all(form.zoned for form in patterns):
        return f"every text has its zone; drop 'in {zone}'"
    if known_zone(zone) is None:
        names = {name.casefold(): name for name in zoneinfo.available_timezones()}
        near = get_close_matches(zone.casefold(), names, n=1, cutoff=0.5)
        hint = f"did you mean {names[near[0]]}?" if near else "zones are named as in Asia/Tokyo or UTC"
        return f"'{zone}' is not a time zone; {hint}"
    return None


@lru_cache(maxsize=1024)
def known_zone(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the zone of this name in the IANA database; None if there is none."""
    try:
        return zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return None
