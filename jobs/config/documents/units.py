"""Units: durations and sizes as people write them, ``60s``, ``2h``, ``128MB``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from jobs.config.documents.base import MAX_INT64

_TIMES = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}
_DURATION = re.compile(r"([0-9]{1,9})\s*(ms|s|m|h|d)")


def parse_duration(value: object) -> timedelta:
    """Reads a whole number with its unit (ms, s, m, h or d); a ``timedelta`` passes through.

    Raises:
        ValueError: The value is anything else, such as a number without a unit, or not above zero.
    """
    if isinstance(value, timedelta):
        duration = value
    elif isinstance(value, str) and (match := _DURATION.fullmatch(value.strip())):
        duration = int(match[1]) * _TIMES[match[2]]
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"needs a unit; write {value:g}s, {value:g}m, {value:g}h or {value:g}d")
    else:
        raise ValueError("must be a whole number with a unit, such as 60s, 5m, 2h or 1d")
    if duration <= timedelta(0):
        raise ValueError("must be longer than zero")
    return duration


def format_duration(duration: timedelta) -> str:
    """Writes a duration in the largest unit that divides it; ``parse_duration`` reads the result back."""
    for unit, length in reversed(_TIMES.items()):
        if duration % length == timedelta(0):
            return f"{duration // length}{unit}"
    raise ValueError(f"{duration} is finer than a millisecond")


Duration = Annotated[timedelta, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str)]


# Powers of 1024, with and without the i, as in Spark, Kafka and Iceberg; the largest first.
_BYTES = {"TB": 1024**4, "GB": 1024**3, "MB": 1024**2, "KB": 1024, "B": 1}
_SIZE = re.compile(r"([0-9]{1,19})\s*(?:([KMGT])i?)?B", re.IGNORECASE)


def parse_size(value: object) -> int:
    """Reads a whole number with its unit (B, KB, MB, GB or TB, or KiB and so on, in either case) as bytes.

    Raises:
        ValueError: The value is anything else, such as a number without a unit, not above zero, or beyond 64 bits.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"needs a unit; write {value}B, {value}MB or {value}GB")
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a whole number with a unit, such as 128MB, 1GiB or 50GB")
    size = int(match[1]) * _BYTES[f"{match[2] or ''}B".upper()]
    if not 0 < size <= MAX_INT64:
        raise ValueError("must be more than nothing and fit 64 bits")
    return size


def format_size(size: int) -> str:
    """Writes a size in the largest unit that divides it; ``parse_size`` reads the result back."""
    unit, length = next((unit, length) for unit, length in _BYTES.items() if size % length == 0)
    return f"{size // length}{unit}"


Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size, return_type=str)]
