"""Decision about a stream: what the supervisor does next, and why, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jobs.supervise.desired import DesiredState

# A driver whose lease was taken or has run out notices within a beat of it.
UNHELD_SECONDS = 90.0
# A keeper launches within a second or two, ending what its driver left behind included; after so long it hangs.
KEEPER_SECONDS = 20.0


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


def file_problem(desired: DesiredState) -> str:
    """Why the stream's file is not valid, as a part of a decision's sentence."""
    return desired.problem.rstrip(".") or "its file cannot be read"


def file_fix(desired: DesiredState) -> str:
    """The next command of a decision where the stream's file is not valid."""
    return "frazil validate" if desired.file == "invalid" else "bring back the folder streams/"


def in_seconds(seconds: float) -> str:
    """A time span for the sentence of a decision."""
    return f"{max(0.0, seconds):.0f} s"
