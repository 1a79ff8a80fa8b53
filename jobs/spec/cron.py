"""Cron: times as five fields, checked where they are written."""

from __future__ import annotations

import re

_MACROS = ("@hourly", "@daily", "@weekly", "@monthly", "@yearly")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_PART = re.compile(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?")


def cron_text(value: str) -> str:
    """Check a cron text: five fields of numbers, ranges, lists and steps, or @hourly and its like.

    Raises:
        ValueError: With the field that is wrong.
    """
    if value in _MACROS:
        return value
    fields = value.split()
    if len(fields) != len(_FIELDS):
        raise ValueError(f"must be five fields of cron, such as '0 * * * *', or one of {', '.join(_MACROS)}")
    for text, (name, least, most, words) in zip(fields, _FIELDS, strict=True):
        for part in text.split(","):
            match = _PART.fullmatch(part)
            ends = [_number(each, least, words) for each in match.group(2, 3) if each] if match else [None]
            wrong = any(each is None or not least <= each <= most for each in ends)
            if match is None or wrong or match[4] == "0" or (match[4] and not match[1] and len(ends) == 1):
                raise ValueError(f"the {name} '{part}' is none: it is {least} to {most}, *, a range or a step of it")
            if len(ends) == 2 and ends[0] > ends[1]:  # type: ignore[operator]
                raise ValueError(f"the {name} '{part}' begins behind its end")
    return value


def _number(text: str, least: int, words: tuple[str, ...]) -> int | None:
    if text.lower() in words:
        return words.index(text.lower()) + least
    return int(text) if text.isdigit() else None
