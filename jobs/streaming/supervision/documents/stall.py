"""Stall of a driver: whether it progresses, by its own heartbeat. Pure functions.

Heartbeats come from a thread of their own, so they continue if the JVM, a batch, or the thread of batches hangs. Only
the driver's own clock counts, so a supervisor on another host, or with another time, sees the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from jobs.config.services.trigger import longest_pause
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat

STALLED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Stall:
    """A driver without progress.

    Attributes:
        since: Start of the stall, seconds since 1970.
        seconds: Duration so far.
        sure: Whether it cannot be long work: no progress was seen, though it would be visible.
    """

    what: str
    since: float
    seconds: float
    sure: bool

    @property
    def sentence(self) -> str:
        """Sentence for people that follows the driver's name."""
        since = datetime.fromtimestamp(self.since, UTC)
        return f"has stalled since {since:%Y-%m-%dT%H:%M:%SZ}: {self.what}"


def stalled_after(spec: StreamSpec) -> float:
    """Seconds without progress after which a busy driver counts as stalled: longer than its intended waits."""
    pause = longest_pause(spec.trigger)
    waits = spec.source.max_delay or timedelta()
    own = spec.restart.stalled_after
    return (own.total_seconds() if own is not None else STALLED_SECONDS) + max(pause, waits).total_seconds()


def find_stall(beat: Heartbeat, after_seconds: float) -> Stall | None:
    """Stall of a driver; None if it progresses, waits for an unavailable service, is paused, or has nothing to do.

    An unanswered request to the JVM is a stall at once. A batch is one after `after_seconds` without visible progress
    of its tasks. If progress is not visible, as on a cluster, it may be a long batch.
    """
    work, now = beat.work, beat.beat_wall
    if beat.state == "starting":
        started = now - beat.state_since
        what = f"it has been starting for {started:.0f} s"
        return Stall(what, beat.state_since, started, True) if started > after_seconds else None
    if beat.state not in ("running", "retrying"):
        return None
    if work.unanswered_since is not None:
        silent = max(0.0, now - work.unanswered_since)
        return Stall(f"its JVM has not answered for {silent:.0f} s", work.unanswered_since, silent, True)
    if beat.state == "retrying":
        return None
    if work.busy_since is not None:
        since = max(work.busy_since, work.got_on_at or 0.0)
        if now - since <= after_seconds:
            return None
        what = f"it has been at one batch for {now - work.busy_since:.0f} s"
        if work.got_on_at is not None:
            what += f", and nothing of it has got on for {now - since:.0f} s"
        return Stall(what, since, now - since, work.got_on_at is not None)
    # A stream may have been quiet for days: the time counts from when there was something to do.
    since = max(work.last_commit_at or 0.0, beat.state_since, work.waiting_since or 0.0)
    if work.last_lag and now - since > after_seconds:
        what = f"it has begun no batch for {now - since:.0f} s though {work.last_lag} records wait"
        return Stall(what, since, now - since, work.waiting_since is not None)
    return None
