"""Keeper's decision whether a driver that has ended without a last heartbeat is started again at once: pure.

A keeper starts again what was launched, and nothing else. Whatever somebody decided meanwhile, or has to decide, is
left to the actions and to the supervisor: a control request, a newer launch, a last heartbeat, too many failures.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from jobs.supervise.control_request import ControlRequest
from jobs.supervise.heartbeat import Heartbeat
from jobs.supervise.launches import Launch, LaunchedProcess, failures_in_a_row, pause_before


class RestartPolicy(msgspec.Struct, frozen=True):
    """The restarts that a keeper may decide on: `restart` of the stream's file, as it was launched; seconds."""

    max_restarts: int
    first_delay: float
    longest_delay: float
    stable_after: float


@dataclass(frozen=True, slots=True)
class KeeperObservation:
    """A stream as its keeper observes it when its driver has ended.

    Attributes:
        attempt: The launch that it keeps.
        driven: A driver of the stream lives.
        held: The stream's lease is held by something that is no driver.
        named: The stream's file is still there.
    """

    attempt: int
    control: ControlRequest
    launch: Launch | None
    process: LaunchedProcess | None
    heartbeat: Heartbeat | None
    driven: bool = False
    held: bool = False
    named: bool = True


@dataclass(frozen=True, slots=True)
class KeeperDecision:
    """What a keeper is to do.

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


def decide_restart(observed: KeeperObservation, policy: RestartPolicy) -> KeeperDecision:
    """Whether a driver that is gone is started again by its keeper."""
    launch, beat, control = observed.launch, observed.heartbeat, observed.control
    newest = max([observed.attempt, *(each.attempt for each in (launch, observed.process, beat) if each is not None)])
    if launch is None or newest > observed.attempt or launch.attempt != observed.attempt:
        return KeeperDecision(False, f"attempt {newest} was launched since")
    if control.mode != "running":
        return KeeperDecision(False, f"the stream is {control.mode}", expected=True)
    if control.end_attempt >= observed.attempt:
        return KeeperDecision(False, f"it was asked to end ({control.action})", expected=True)
    if beat is not None and beat.attempt == observed.attempt and beat.final:
        return KeeperDecision(False, f"it has said its last word ({beat.state})", expected=True)
    if observed.driven:
        return KeeperDecision(False, "a driver runs")
    if observed.held:
        return KeeperDecision(False, "something else lands the stream's records")
    if not observed.named:
        return KeeperDecision(False, "the stream's file is gone")
    failures = failures_in_a_row(launch, beat, policy.stable_after)
    if failures > policy.max_restarts:
        return KeeperDecision(False, f"it failed {failures} times in a row")
    pause = pause_before(failures, policy.first_delay, policy.longest_delay)
    return KeeperDecision(True, "it ended without a last word", failures, pause)
