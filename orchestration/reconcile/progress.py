"""How far a stream has come, by what its driver says of itself."""

from __future__ import annotations

from jobs.supervise.heartbeat import Heartbeat


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
