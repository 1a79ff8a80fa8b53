"""Durations as people write them: ``60s``, ``5m``, ``2h``, ``1d``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_TEXT = re.compile(r"([0-9]{1,9})\s*(ms|s|m|h|d)")


def parse_duration(value: object) -> timedelta:
    """Reads a whole number with its unit (ms, s, m, h or d); a ``timedelta`` passes through.

    Raises:
        ValueError: If it is anything else, a number without a unit included, or not above zero.
    """
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, str) and (match := _TEXT.fullmatch(value.strip())):
        duration = int(match[1]) * _UNITS[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"needs a unit; write {value:g}s, {value:g}m, {value:g}h or {value:g}d")
    else:
        raise ValueError("must be a whole number with a unit, such as 60s, 5m, 2h or 1d")
    if duration <= timedelta(0):
        raise ValueError("must be longer than zero")
    return duration


def format_duration(duration: timedelta) -> str:
    """Writes a duration in the largest unit that divides it, so that ``parse_duration`` gives the same back."""
    for unit, length in reversed(_UNITS.items()):
        if duration % length == timedelta(0):
            return f"{duration // length}{unit}"
    raise ValueError(f"{duration} is finer than a millisecond")


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str)]
