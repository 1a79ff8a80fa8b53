"""Whether a driver that has ended without a word is started again at once, by its keeper: pure.

A keeper starts again what was launched, and nothing else. Whatever somebody decided meanwhile, or has to decide, is
left to the actions and to the supervisor: a wish, a newer launch, a last word, too many failures.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from jobs.supervise.control import Control
from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.launches import Launch, failures_in_a_row, pause_before
from jobs.supervise.process_note import ProcessNote


class Policy(msgspec.Struct, frozen=True):
    """`restart` of the stream's file, as it was launched; seconds."""

    max_restarts: int
    first_delay: float
    longest_delay: float
    stable_after: float


@dataclass(frozen=True, slots=True)
class Seen:
    """What a keeper sees of its stream when its driver has ended.

    Attributes:
        attempt: The launch that it keeps.
        driven: A driver of the stream lives.
        held: The stream's lease is held by something that is no driver.
        named: The stream's file is still there.
    """

    attempt: int
    control: Control
    launch: Launch | None
    note: ProcessNote | None
    beat: Heartbeat | None
    driven: bool = False
    held: bool = False
    named: bool = True


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do.

    Attributes:
        restart: Whether the driver is started again; otherwise the keeper's work is over.
        why: The reason, as a part of a sentence.
        failures: How many launches have failed in a row, the newest included.
        pause: Seconds to wait before the start, from the driver's end.
        expected: Nothing has gone wrong that anybody would look for in a log.
    """

    restart: bool
    why: str
    failures: int = 0
    pause: float = 0.0
    expected: bool = False


def judge(seen: Seen, policy: Policy) -> Verdict:
    """Whether a driver that is gone is started again by its keeper."""
    launch, beat, control = seen.launch, seen.beat, seen.control
    newest = max([seen.attempt, *(each.attempt for each in (launch, seen.note, beat) if each is not None)])
    if launch is None or newest > seen.attempt or launch.attempt != seen.attempt:
        return Verdict(False, f"attempt {newest} was launched since")
    if control.wish != "running":
        return Verdict(False, f"the stream is {control.wish}", expected=True)
    if control.end_attempt >= seen.attempt:
        return Verdict(False, f"it was asked to end ({control.action})", expected=True)
    if beat is not None and beat.attempt == seen.attempt and beat.final:
        return Verdict(False, f"it has said its last word ({beat.state})", expected=True)
    if seen.driven:
        return Verdict(False, "a driver runs")
    if seen.held:
        return Verdict(False, "something else lands the stream's records")
    if not seen.named:
        return Verdict(False, "the stream's file is gone")
    failures = failures_in_a_row(launch, beat, policy.stable_after)
    if failures > policy.max_restarts:
        return Verdict(False, f"it failed {failures} times in a row")
    pause = pause_before(failures, policy.first_delay, policy.longest_delay)
    return Verdict(True, "it ended without a last word", failures, pause)
