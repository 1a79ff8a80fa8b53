"""Whether a driver gets on with its work, by what it says of itself."""

from __future__ import annotations

from jobs.supervise.heartbeat import Heartbeat
from orchestration.reconcile.facts import Desired


def stalled(desired: Desired, beat: Heartbeat) -> str | None:
    """Why a driver counts as stalled, in words that follow its name; None if it does not.

    Only the driver's own clock is asked, so a supervisor on another host, or with another time, sees the same. A
    stalled driver is reported and never ended: nobody can tell a long batch from one that hangs.
    """
    if beat.state != "running":
        return None
    work = beat.work
    if work.busy_since is not None:
        busy = beat.beat_wall - work.busy_since
        if busy > desired.stalled_after:
            return f"has been at one batch for {busy:.0f} s"
        return None
    waited = beat.beat_wall - max(work.last_commit_at or 0.0, beat.state_since)
    if work.total_lag and waited > desired.stalled_after:
        return f"has begun no batch for {waited:.0f} s though {work.total_lag} records wait"
    return None


def complete_through(beat: Heartbeat | None) -> float | None:
    """Every record with an older timestamp is in the tables, by a driver's word; seconds since 1970, None if unknown.

    A stream that stood at the end of its topics was complete when it was looked up, though no commit says so; unless
    records of open transactions waited there.
    """
    if beat is None:
        return None
    work = beat.work
    known = [work.valid_through_ms / 1000] if work.valid_through_ms is not None else []
    # Without a partition there is no end to stand at.
    if work.lag and work.lag_at is not None and work.total_lag == 0 and not work.total_undecided:
        known.append(work.lag_at)
    return max(known, default=None)
