"""Cursor of the reconcile sensor: what the supervisor keeps from one tick to the next.

It is short, since Dagster keeps a copy with every tick. All of it may be lost: then the newest snapshot of each table
is reported once more, checks are too, and delays begin anew.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection
from dataclasses import replace
from typing import Generic, Self, TypeVar
from zlib import crc32

import msgspec

from jobs.base.system.boot import boot_id
from jobs.base.system.typed_json import decode_json
from jobs.config.stream.models import StreamSpec
from jobs.quality.publishing.main_freshness import MainFreshness
from jobs.streaming.supervision.processes.actual import ActualState

M = TypeVar("M")
# A run without effect is requested again after so long; after twice as long each time it has no effect again.
AGAIN_SECONDS = 30.0
LONGEST_AGAIN_SECONDS = 600.0
# A result that flaps is reported this often at most.
CHANGED_SECONDS = 30
SHORTEST_SECONDS, LONGEST_SECONDS = 60.0, 300.0


class StreamsCursor(msgspec.Struct, Generic[M], omit_defaults=True):
    """The memory of a sensor, by stream. It is short, since Dagster keeps a copy with every tick."""

    streams: dict[str, M] = msgspec.field(default_factory=dict)

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Self:
        """Read a cursor; an unreadable one gives an empty memory."""
        with contextlib.suppress(msgspec.DecodeError):
            return decode_json(cursor or "{}", cls)
        return cls()

    def to_cursor(self) -> str:
        """The memory as text, as Dagster keeps it."""
        return msgspec.json.encode(self).decode()

    def keep_only(self, streams: Collection[str]) -> None:
        """Forget all but these streams."""
        for stream in set(self.streams) - set(streams):
            del self.streams[stream]


class StreamCursor(msgspec.Struct, omit_defaults=True):
    """Memory about one stream. Times on the boot clock are whole seconds of it, the others since 1970.

    Attributes:
        request: The number of the newest control run that was asked for; only grows.
        asked: What that run was to do, and after which attempt; `asked_at`: boot clock when it was asked for; `asks`:
            how often the same was asked for.
        attempt: The launch that `launched` and `down` belong to.
        launched: Boot clock when a launch without a heartbeat was first seen.
        down: Boot clock when the stream was first seen without a driver.
        unheld: Boot clock when its driver was first seen at work without the lease.
        sink, dead: The snapshots last reported of its tables; `sink_at`, `dead_at`: when.
        routed: Sequence numbers of the snapshots last reported of the other tables of its route, in the order of its
            targets; `routed_names`: a checksum of their names; `routed_at`: when.
        replays: Checksum of the newest replay when the letters were last reported; `uncounted`: they were not counted.
        letters: How many letters waited when they were last counted.
        lag: A checksum of the lags last reported; `lag_at`: when.
        state: A checksum of the state last reported; `state_at`: when any was reported.
        checks: Of what each check said last, a short checksum; `checks_at`: when they were reported.
        kept: How many restarts by the stream's watchdogs were reported; `kept_at`: when.
        looked_at: When the lag of a stream whose driver does not say was last asked for; `waiting` records waited at
            `waiting_at`.
        through: The latest time that its table is known to have been complete through, under this attempt.
        watermark: Its watermark when the lag of a stream whose driver does not say was last asked for.
        main: What main lacked of a write-audit-publish stream's branch when last looked up; `main_at`: when.
        reported_epoch: Epoch of the newest one-off run whose tables were reported.
    """

    request: int = msgspec.field(default=0, name="r")
    asked: str = msgspec.field(default="", name="q")
    asked_at: int = msgspec.field(default=0, name="qa")
    asks: int = msgspec.field(default=0, name="n")
    attempt: int = msgspec.field(default=0, name="a")
    launched: int | None = msgspec.field(default=None, name="l")
    down: int | None = msgspec.field(default=None, name="d")
    unheld: int | None = msgspec.field(default=None, name="u")
    sink: int | None = msgspec.field(default=None, name="s")
    sink_at: int = msgspec.field(default=0, name="sa")
    dead: int | None = msgspec.field(default=None, name="x")
    dead_at: int = msgspec.field(default=0, name="xa")
    routed: list[int] = msgspec.field(default_factory=list, name="o")
    routed_names: int = msgspec.field(default=0, name="on")
    routed_at: int = msgspec.field(default=0, name="oa")
    replays: int = msgspec.field(default=0, name="y")
    uncounted: bool = msgspec.field(default=False, name="u0")
    lag: int = msgspec.field(default=0, name="g")
    lag_at: int = msgspec.field(default=0, name="ga")
    letters: int | None = msgspec.field(default=None, name="lw")
    state: int = msgspec.field(default=0, name="t")
    state_at: int = msgspec.field(default=0, name="ta")
    checks: list[int] = msgspec.field(default_factory=list, name="c")
    checks_at: int = msgspec.field(default=0, name="ca")
    kept: int | None = msgspec.field(default=None, name="p")
    kept_at: int = msgspec.field(default=0, name="pa")
    looked_at: int = msgspec.field(default=0, name="k")
    waiting: int | None = msgspec.field(default=None, name="kw")
    waiting_at: int = msgspec.field(default=0, name="ka")
    through: int | None = msgspec.field(default=None, name="kt")
    watermark: int | None = msgspec.field(default=None, name="kv")
    main: MainFreshness | None = msgspec.field(default=None, name="m")
    main_at: int = msgspec.field(default=0, name="ma")
    reported_epoch: int = msgspec.field(default=0, name="re")

    def timed(self, actual: ActualState, clock: float) -> ActualState:
        """The facts with how long they have been so, and remember since when.

        Args:
            actual: The facts; their times may have been told by a clock that jumps.
        """
        attempt = actual.launch.attempt if actual.launch else 0
        if attempt != self.attempt:
            self.attempt, self.launched, self.down, self.unheld = attempt, None, None, None
            # Offsets may have been reset, or the table rolled back, between two drivers.
            self.through = None
        now = math.floor(clock)
        if not actual.awaited:
            self.launched = None
        elif self.launched is None:
            self.launched = now
        if actual.driver_lives and actual.fresh:
            self.down = None
        elif self.down is None:
            self.down = now
        if not actual.unheld:
            self.unheld = None
        elif self.unheld is None:
            self.unheld = now
        return replace(
            actual,
            launched_for=clock - self.launched if self.launched is not None else 0.0,
            down_for=clock - self.down if self.down is not None else None,
            unheld_for=clock - self.unheld if self.unheld is not None else 0.0,
        )

    def state_is_new(self, code: str, now: float) -> bool:
        """Whether the state differs from the one last reported, and none was reported just now."""
        return checksum(code) & 0xFFFF != self.state and due(now, self.state_at, CHANGED_SECONDS)

    def state_reported(self, code: str, now: float) -> None:
        """Note that the state has been reported."""
        self.state, self.state_at = checksum(code) & 0xFFFF, math.floor(now)

    def complete_through(self, told: float | None) -> float | None:
        """Time through which the table is complete, which does not fall back within one attempt.

        The table of a quiet topic is complete through now. With the topic's next record, the report falls back to the
        last batch, though the table was complete a moment ago.

        Args:
            told: Reported time through which the table is complete; None if unknown.
        """
        if told is None:
            # Nothing is known since offsets were reset.
            self.through = None
            return None
        known = told if self.through is None else max(told, self.through)
        self.through = math.floor(known)
        return known

    def may_request(self, action: str, clock: float) -> bool:
        """Whether a run may be asked for now: at once, unless the same was asked for before and nothing came of it.

        Such a run is requested again after growing pauses: an impossible action would otherwise fail twice a minute,
        for ever. After a long pause, it counts as a new request.

        Args:
            action: The action to take; empty for none.
        """
        if not action:
            return False
        asked, since = f"{action}:{self.attempt}", clock - self.asked_at
        same = asked == self.asked and since < 2 * LONGEST_AGAIN_SECONDS
        if same and since < min(LONGEST_AGAIN_SECONDS, AGAIN_SECONDS * 2 ** (self.asks - 1)):
            return False
        # More doublings are of no use.
        self.asks = min(self.asks + 1, 9) if same else 1
        self.asked, self.asked_at = asked, math.floor(clock)
        return True


class SensorCursor(StreamsCursor[StreamCursor]):
    """The whole cursor.

    Attributes:
        boot: The boot that times on the boot clock belong to.
        reported_at: When the supervisor last reported itself; `fleet`: a checksum of which streams needed somebody.
        away_until: Kafka did not answer, and is not asked again before this; seconds since 1970.
        settings: A checksum of what was wrong with the settings.
        files: A checksum of the streams' files while Dagster has loaded others; `reloaded_at`: when it was asked to
            load them.
    """

    boot: str = ""
    reported_at: int = 0
    fleet: int = 0
    away_until: int = 0
    settings: int = 0
    files: int = 0
    reloaded_at: int = 0

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Self:
        """Read a cursor; an unreadable one gives an empty memory. Times of another boot are left out."""
        memory = super().from_cursor(cursor)
        if memory.boot != boot_id():
            memory.boot = boot_id()
            for stream in memory.streams.values():
                stream.launched = stream.down = stream.unheld = None
                stream.asked = ""
        return memory


def checksum(text: str) -> int:
    """A checksum for the cursor; differs between two texts with near certainty, and is never 0."""
    return crc32(text.encode("utf-8", "backslashreplace")) or 1


def due(now: float, last: int, seconds: float) -> bool:
    """Whether so many seconds have passed since a time in the cursor, or the clock was set back."""
    return not 0 <= now - last < seconds


def report_seconds(spec: StreamSpec) -> float:
    """The shortest time between reports of a stream's tables and lag, and the longest while it is caught up."""
    if spec.freshness is None:
        return LONGEST_SECONDS
    # Three reports before the policy warns: one may be late, and one lost.
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, spec.freshness.warn.total_seconds() / 3))
