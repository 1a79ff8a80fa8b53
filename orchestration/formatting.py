"""Formatting for people: numbers, time spans, and small pictures of shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jobs.tables.commit.stamp.lateness import LATENESS_NAMES, Lateness

_HEIGHTS = "▁▂▃▄▅▆▇█"


def span(seconds: float) -> str:
    """A time span as a person reads it."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def thousands(value: Any) -> str:
    """A number with separators; a dash for None."""
    return "–" if value is None else f"{value:,}"


def sparkline(shares: Sequence[float | None]) -> str:
    """A character for each share: the lowest for none of it, the others up to the greatest of them; `?` for None."""
    greatest = max((each for each in shares if each is not None), default=0.0)
    steps = len(_HEIGHTS) - 1
    return "".join(
        "?" if each is None else _HEIGHTS[math.ceil(each / greatest * steps) if each > 0 else 0] for each in shares
    )


def percentage(share: float | None) -> str:
    """A share of 1 in percent; what is not quite none or all never looks so. A dash for None."""
    if share is None:
        return "–"
    text = f"{share:.2%}"
    if share > 0 and text == "0.00%":
        return "<0.01%"
    return ">99.99%" if share < 1 and text == "100.00%" else text


def lateness(late_by: Lateness, latest_ms: int) -> str:
    """Text about the lateness of records: `2 by up to 1m, 1 by more than 1d; the latest by 2 d 3 h`.

    Args:
        late_by: Number of late records by lateness, as the stamps count them.
        latest_ms: Lateness of the latest record.
    """
    named = [f"by up to {each}" for each in LATENESS_NAMES[:-1]] + [f"by more than {LATENESS_NAMES[-2]}"]
    steps = ", ".join(f"{count:,} {name}" for count, name in zip(late_by, named, strict=True) if count)
    # A record that is late by less than a second is late.
    latest = f"{latest_ms} ms" if latest_ms < 1000 else span(latest_ms / 1000)
    return f"{steps}; the latest by {latest}" if steps else "none"
