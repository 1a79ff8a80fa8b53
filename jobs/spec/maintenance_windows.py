"""Maintenance windows: the hours of the day at which something may be done, ``22:00-05:00``, UTC."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

_TEXT = re.compile(r"([0-9]{1,2}):([0-9]{2})\s*[-–]\s*([0-9]{1,2}):([0-9]{2})")
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Window:
    """A part of every day.

    Attributes:
        start: Minutes after midnight UTC, at which it opens.
        end: … at which it closes; not after `start`: it goes past midnight.
    """

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start // 60:02}:{self.start % 60:02}-{self.end // 60:02}:{self.end % 60:02}"

    def __contains__(self, moment: datetime) -> bool:
        utc = moment.astimezone(UTC)
        minute = utc.hour * 60 + utc.minute
        if self.start < self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def parse_window(value: object) -> Window:
    """Reads two times of the day, such as ``22:00-05:00``; a ``Window`` passes through.

    Raises:
        ValueError: If it is anything else, or holds no time at all.
    """
    if isinstance(value, Window):
        return value
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError("must be two times of the day (UTC), such as 22:00-05:00")
    hour, minute, end_hour, end_minute = map(int, match.groups())
    start, end = hour * 60 + minute, end_hour * 60 + end_minute
    if max(minute, end_minute) > 59 or start >= _DAY or end > _DAY:
        raise ValueError("must be times from 00:00 to 24:00, such as 22:00-05:00")
    if start == end:
        raise ValueError("holds no time; leave windows out for always")
    return Window(start, end)


def is_open(windows: Sequence[Window], now: datetime) -> bool:
    """Whether now is in one of them; without any it always is."""
    return not windows or any(now in window for window in windows)


WindowText = Annotated[Window, PlainValidator(parse_window), PlainSerializer(str, return_type=str)]
