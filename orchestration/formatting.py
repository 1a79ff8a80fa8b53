"""Formatting of numbers and time spans for people."""

from __future__ import annotations

from typing import Any


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
