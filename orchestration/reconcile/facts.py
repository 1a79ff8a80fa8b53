"""What is wanted of a stream and what there is of it, as data: all that a decision is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from jobs.spec.models import Restart
from jobs.stream.unknown_fields import UnknownFields
from jobs.supervise.control import Control
from jobs.supervise.driver_process import SILENT_SECONDS
from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.launches import Launch
from jobs.supervise.stall import STALLED_SECONDS

FileState = Literal["valid", "invalid", "none", "unsure"]
LeaseState = Literal["none", "live", "expired", "released", "dead"]

FRESH_SECONDS = SILENT_SECONDS
START_SECONDS = 90.0
# A driver whose lease was taken or has run out notices within a beat of it.
UNHELD_SECONDS = 90.0
# A keeper launches within a second or two, ending what its driver left behind included; after so long it hangs.
KEEPER_SECONDS = 20.0
# Who launches notes the process at once; after so long nobody is about to.
UNSTARTED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Desired:
    """What is wanted of one stream.

    Attributes:
        file: `valid`; `invalid`: a file that names it, or from which it was launched, has problems; `none`: no file
            names it; `unsure`: the folder `streams/` is missing, unreadable or empty, which says nothing of a stream.
        problem: Why the file is not `valid`, in a sentence.
        generation: Of the file as it is; None if it is not valid.
        launchable: Whether there is a configuration to launch a driver with: the file's, or the one launched last.
        continuous: Whether a driver is wanted for as long as the stream is.
        control: The operator's newest word.
        restart: How it is started again; the default where the file cannot be read.
        stalled_after: Seconds without progress after which a driver that has work counts as stalled, and is replaced.
    """

    stream: str
    file: FileState
    generation: str | None = None
    problem: str = ""
    launchable: bool = True
    continuous: bool = True
    control: Control = field(default_factory=Control)
    restart: Restart = field(default_factory=Restart)
    stalled_after: float = STALLED_SECONDS


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """Who holds the stream's lease.

    Attributes:
        state: `live`: held; `expired`: not renewed in time; `dead`: not released, and its process is known to be gone.
        started, boot: Tell the process apart from a later one with the same pid, as in the lease.
    """

    state: LeaseState = "none"
    epoch: int = 0
    pid: int = 0
    started: str = ""
    boot: str = ""
    host: str = ""

    @property
    def holder(self) -> str:
        """For sentences."""
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class Actual:
    """What there is of one stream.

    Attributes:
        beat: The newest heartbeat of whatever attempt.
        beat_age: Seconds since then, by the boot clock where it is this host's.
        process: Whether the heartbeat's process runs; None if that cannot be told from here.
        launch: The newest launch.
        launched_for: Seconds since the newest launch, as far as known.
        down_for: Seconds for which no driver has been seen, on a clock that neither jumps nor stops; None if nobody
            kept count, and then the wall clock has to do.
        unheld_for: Seconds for which a driver has been seen at work without the lease, as far as somebody kept count.
        unknown_fields: Keys that the schema does not declare, as the newest configuration met them.
        keeper: The process of the newest launch's keeper, if it lives on this host.
        unstarted: No process was noted for the newest launch, or it is known to be gone.
        problem: A file of the state folder that cannot be read, in a sentence; `fix` is the next command.
    """

    lease: LeaseFacts = field(default_factory=LeaseFacts)
    beat: Heartbeat | None = None
    beat_age: float = 0.0
    process: bool | None = None
    launch: Launch | None = None
    launched_for: float = 0.0
    down_for: float | None = None
    unheld_for: float = 0.0
    unknown_fields: UnknownFields | None = None
    keeper: int | None = None
    unstarted: bool = False
    problem: str = ""
    fix: str | None = None

    @property
    def fresh(self) -> bool:
        """Whether the newest beat is recent."""
        return self.beat is not None and self.beat_age <= FRESH_SECONDS

    @property
    def lease_is_the_drivers(self) -> bool:
        """Whether who beats is who holds, or last held, the lease."""
        beat, lease = self.beat, self.lease
        if beat is None or lease.state == "none":
            return False
        return (beat.pid, beat.started, beat.boot) == (lease.pid, lease.started, lease.boot)

    @property
    def driver_lives(self) -> bool:
        """Whether a driver is at work, as far as can be told: its process runs, and it has not said its last word."""
        if self.beat is None or self.beat.final:
            return False
        if self.process is None:
            return self.fresh or (self.lease.state == "live" and self.lease_is_the_drivers)
        return self.process

    @property
    def holds_lease(self) -> bool:
        """Whether who beats holds the stream's lease now."""
        return self.lease.state == "live" and self.lease_is_the_drivers

    @property
    def frozen(self) -> bool:
        """Whether a process that still exists has lost its stream: it does not beat, and its lease has run out."""
        return self.driver_lives and not self.fresh and not self.holds_lease

    @property
    def unheld(self) -> bool:
        """Whether a driver that beats is at work without the lease, as one that waits or starts may be."""
        at_work = self.beat is not None and self.beat.state in ("running", "stopping")
        return at_work and self.driver_lives and self.fresh and not self.holds_lease

    @property
    def awaited(self) -> bool:
        """Whether a launch has not had its first beat."""
        return self.launch is not None and (self.beat is None or self.beat.attempt < self.launch.attempt)

    @property
    def kept(self) -> bool:
        """Whether a keeper starts the driver again that is gone: one that has not said its last word."""
        return self.keeper is not None and (self.awaited or (self.beat is not None and not self.beat.final))


class Action(StrEnum):
    """What to do about a stream."""

    START = "start"
    ADOPT = "adopt"  # nothing: it runs as it is wanted
    ROLL = "roll"
    STOP = "stop"
    BACKOFF = "backoff"
    HALT = "halt"  # nothing: a person has to act
    WAIT = "wait"
    IDLE = "idle"  # nothing is wanted


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about one stream, and why.

    Attributes:
        sentence: For people.
        fix: The next command, where a person can do something.
        seconds: With BACKOFF, how long to wait still.
        failures: How many launches failed in a row, where that counts.
        ends: With ROLL, that the driver is to be ended whatever it runs; another is started once it has.
    """

    action: Action
    sentence: str
    fix: str | None = None
    seconds: float = 0.0
    failures: int = 0
    ends: bool = False
