"""Literals of an expression: numbers, and the text of an INTERVAL."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(r"\s*([+-]?[0-9]{1,12})\s+([A-Za-z]+)")
_MONTHS = {"year": 12, "quarter": 3, "month": 1}
MICROS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
"""Units of a fixed length, in microseconds; a day has 24 hours."""
_LARGEST = 2**62


def number_of(text: str) -> int | Decimal | float:
    """A number as it is written: whole, with a point (exact), or with an exponent (a double)."""
    if "e" in text.lower():
        return float(text)
    return Decimal(text) if "." in text else int(text)


def duration_of(text: str) -> tuple[int, int]:
    """Months and microseconds of `1 day`, `3 hours 30 minutes`, `-1 month`.

    Raises:
        ValueError: With a sentence that says what is wrong.
    """
    months = micros = position = 0
    while match := _QUANTITY.match(text, position):
        count, unit = int(match[1]), match[2].lower().removesuffix("s")
        if unit in _MONTHS:
            months += count * _MONTHS[unit]
        elif unit in MICROS:
            micros += count * MICROS[unit]
        else:
            raise ValueError(f"'{match[2]}' is no unit; the units are {', '.join([*_MONTHS, *MICROS])}")
        position = match.end()
    if text[position:].strip() or not position:
        raise ValueError("needs an interval such as '3 hours' or '1 day 12 hours'")
    if abs(micros) > _LARGEST or abs(months) > 120_000:
        raise ValueError("the interval is too long")
    return months, micros
