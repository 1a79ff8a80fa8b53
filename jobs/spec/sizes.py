"""Sizes as people write them: ``128MB``, ``50GB``."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer

from jobs.spec.fields import MAX_INT64

# Powers of 1024 with and without the i, as Spark, Kafka and Iceberg's own figures count; the largest first.
_UNITS = {"TB": 1024**4, "GB": 1024**3, "MB": 1024**2, "KB": 1024, "B": 1}
_TEXT = re.compile(r"([0-9]{1,19})\s*(?:([KMGT])i?)?B", re.IGNORECASE)


def parse_size(value: object) -> int:
    """Reads a whole number with its unit (B, KB, MB, GB or TB, or KiB and so on, in either case) as bytes.

    Raises:
        ValueError: If it is anything else, a number without a unit included, not above zero, or beyond 64 bits.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        raise ValueError(f"needs a unit; write {value}B, {value}MB or {value}GB")
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be a whole number with a unit, such as 128MB, 1GiB or 50GB")
    size = int(match[1]) * _UNITS[f"{match[2] or ''}B".upper()]
    if not 0 < size <= MAX_INT64:
        raise ValueError("must be more than nothing and fit 64 bits")
    return size


def format_size(size: int) -> str:
    """Writes a size in the largest unit that divides it, so that ``parse_size`` gives the same back."""
    unit, length = next((unit, length) for unit, length in _UNITS.items() if size % length == 0)
    return f"{size // length}{unit}"


Size = Annotated[int, BeforeValidator(parse_size), PlainSerializer(format_size, return_type=str)]
