"""Members of a group: the streams that its driver starts, launches anew, and in which order. Pure functions.

A stream belongs to the group that its newest launch names. A stream that was launched and has not begun is started. If
an earlier driver of the group ended without a last heartbeat, its streams are launched anew, as a watchdog does for a
stream's own driver. Everything else is left to the actions and the supervisor.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.heartbeat import Heartbeat
from jobs.streaming.supervision.documents.launches import Launch, deaths_in_a_row

TakeUp: TypeAlias = Literal["no", "launched", "anew"]

MOST_DEATHS = 2
"""Number of consecutive deaths of the driver during a stream's batch after which the stream is left out."""
PROVEN_SECONDS = 3.0
"""Idle running time after which a stream counts as harmless: one with records begins a batch at once."""
ALONE_SECONDS = 120.0
"""Longest time that all other streams wait for one."""


@dataclass(frozen=True, slots=True)
class Member:
    """A stream whose newest launch names the group.

    Attributes:
        heartbeat: The newest heartbeat, of any attempt.
        driven: Whether a driver seems to run it, or something else lands its records.
    """

    stream: str
    launch: Launch
    control: ControlRequest
    heartbeat: Heartbeat | None
    driven: bool = False

    @property
    def unwanted(self) -> bool:
        """Whether its operator wants no driver, or no driver of this attempt."""
        return self.control.mode == "stopped" or self.control.end_attempt >= self.launch.attempt

    @property
    def unbegun(self) -> bool:
        """Whether its newest launch has not begun."""
        return self.heartbeat is None or self.heartbeat.attempt < self.launch.attempt

    def take_up(self, carried: int) -> TakeUp:
        """Whether and how the group's driver starts it now.

        Args:
            carried: Newest attempt that this driver runs or has run; 0 for none.
        """
        attempt, beat = self.launch.attempt, self.heartbeat
        if self.unwanted or attempt <= carried or (beat is not None and beat.attempt > attempt):
            return "no"
        if beat is None or beat.attempt < attempt:
            return "no" if self.driven else "launched"
        if (beat.final and beat.state != "terminated") or self.driven:
            return "no"
        return "anew"

    @property
    def deaths(self) -> int:
        """Number of consecutive drivers of the group that died while it was opening or had a batch."""
        return deaths_in_a_row(self.launch, self.heartbeat)

    @property
    def suspect(self) -> bool:
        """Whether the newest driver may have died of it."""
        return self.deaths > 0

    @property
    def left_out(self) -> bool:
        """Whether so many drivers have died of it that it is not tried again."""
        return self.deaths >= MOST_DEATHS


def proven(beat: Heartbeat, now: float, since: float) -> bool:
    """Whether a stream that was started alone proved harmless, or others have waited long enough.

    Args:
        beat: Heartbeat of its present attempt.
        now: Present time, seconds since 1970.
        since: Time when it was started.
    """
    if beat.final or beat.state in ("paused", "retrying") or beat.work.made_progress:
        return True
    idle = beat.state == "running" and beat.work.busy_since is None
    return now - since > ALONE_SECONDS or (idle and now - beat.state_since > PROVEN_SECONDS)


def in_order(members: Iterable[Member]) -> tuple[list[Member], list[Member]]:
    """Streams to start one by one, and streams to start after them, each ordered by id."""
    ordered = sorted(members, key=lambda each: each.stream)
    return [each for each in ordered if each.suspect], [each for each in ordered if not each.suspect]
