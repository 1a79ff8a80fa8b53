"""Members of a group: which of its streams its driver takes up, which it launches anew, and in which order: pure.

A stream belongs to the group that its newest launch names. One that was launched and has not begun is taken up as it
is. One that an earlier driver of the group carried when that ended without a word is launched anew, as a keeper does
for a stream that has a driver of its own. All else is left to the actions and the supervisor.
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
"""So often in a row the driver may die with a stream's batch at hand, before the stream is left out."""
PROVEN_SECONDS = 3.0
"""A stream that has run for so long with nothing at hand does no harm: one that has records begins a batch at once."""
ALONE_SECONDS = 120.0
"""The longest that all others wait for one stream."""


@dataclass(frozen=True, slots=True)
class Member:
    """A stream whose newest launch names the group.

    Attributes:
        heartbeat: The newest, of whatever attempt.
        driven: A driver carries it, as far as can be seen, or something else lands its records.
    """

    stream: str
    launch: Launch
    control: ControlRequest
    heartbeat: Heartbeat | None
    driven: bool = False

    @property
    def unwanted(self) -> bool:
        """Whether its operator wants no driver, or none of this attempt."""
        return self.control.mode == "stopped" or self.control.end_attempt >= self.launch.attempt

    @property
    def unbegun(self) -> bool:
        """Whether nobody has begun its newest launch."""
        return self.heartbeat is None or self.heartbeat.attempt < self.launch.attempt

    def take_up(self, carried: int) -> TakeUp:
        """Whether the group's driver takes it up now, and how.

        Args:
            carried: The newest attempt that this driver carries, or has carried; 0 for none.
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
        """How many drivers of the group died in a row while it was opening, or had a batch at hand."""
        return deaths_in_a_row(self.launch, self.heartbeat)

    @property
    def suspect(self) -> bool:
        """Whether the newest driver may have died of it."""
        return self.deaths > 0

    @property
    def left_out(self) -> bool:
        """Whether drivers have died of it so often that it is not tried again."""
        return self.deaths >= MOST_DEATHS


def proven(beat: Heartbeat, now: float, since: float) -> bool:
    """Whether a stream that was started alone does the driver no harm, or others have waited for it long enough.

    Args:
        beat: Of its present attempt.
        now: Seconds since 1970.
        since: When it was started.
    """
    if beat.final or beat.state in ("paused", "retrying") or beat.work.made_progress:
        return True
    idle = beat.state == "running" and beat.work.busy_since is None
    return now - since > ALONE_SECONDS or (idle and now - beat.state_since > PROVEN_SECONDS)


def in_order(members: Iterable[Member]) -> tuple[list[Member], list[Member]]:
    """Those to be started one by one, and those that start after them, each in the order of their ids."""
    ordered = sorted(members, key=lambda each: each.stream)
    return [each for each in ordered if each.suspect], [each for each in ordered if not each.suspect]
