"""Lateness of records behind the watermark, counted up to some bounds. Heartbeats use it, so it imports little."""

from __future__ import annotations

from collections.abc import Iterable

LATENESS_MS = (60_000, 600_000, 3_600_000, 86_400_000)
"""Bounds up to which late rows are counted, and beyond the last: a minute, ten, an hour, a day."""
LATENESS_NAMES = ("1m", "10m", "1h", "1d", "more")

Lateness = tuple[int, int, int, int, int]
"""Late records by lateness, see `LATENESS_MS`."""

NONE_LATE: Lateness = (0, 0, 0, 0, 0)


def summed_lateness(one: Iterable[int], other: Iterable[int]) -> Lateness:
    """Late records of two parts together, by lateness."""
    first, second, third, fourth, fifth = (a + b for a, b in zip(one, other, strict=True))
    return first, second, third, fourth, fifth
