"""Event times of an interval: what the stamps of a stream say of them, from one publication to the next. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jobs.commit.event_times import NO_EVENTS, EventTimes
from jobs.commit.stamps import Stamp


def interval_event_times(stamps: Iterable[Stamp]) -> EventTimes | None:
    """The event times over an interval, as its publication is stamped with them; None where the newest stamp has none.

    The bound is that of its first batch: what had closed by then had closed before any of it.

    Args:
        stamps: Of the stream itself, oldest first.
    """
    known = [each for each in stamps if each.event_time]
    if not known or (newest := known[-1].event_time) is None:
        return None
    batches = [each.event_time for each in known if each.kind == "batch" and each.event_time]
    same = [each for each in batches if each.column == newest.column]
    bound = same[0].bound_ms if same else newest.watermark_ms
    counts = sum((each.batch for each in same), NO_EVENTS)
    return EventTimes(newest.column, newest.watermark_ms, bound, first_ms=newest.first_ms, batch=counts.bounded())
