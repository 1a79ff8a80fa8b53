"""Decision about a stream from its desired and its actual state: the pure function `decide`.

START is never decided while a live lease exists. What keeps a commit safe if the facts are wrong all the same is not
this function, but the lease's epoch: the claims in the tables refuse whoever is not the newest driver.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from jobs.streaming.supervision.documents.launches import failures_in_a_row, pause_before, process_name
from jobs.streaming.supervision.documents.stall import Stall, find_stall
from jobs.streaming.supervision.processes.actual import START_SECONDS, ActualState
from jobs.streaming.supervision.state.desired import DesiredState
from orchestration.reconcile.halts import Halt

# A driver whose lease was taken or has run out notices within a heartbeat of it.
UNHELD_SECONDS = 90.0
# A watchdog launches within a second or two, ending the remains of its driver included; after so long it hangs.
KEEPER_SECONDS = 20.0
_ELSEWHERE = "another deployment, or another host, seems to take it time and again"
# A driver that was asked to end finishes its batch; after so long it is asked again, with its own grace.
_END_SECONDS = 150.0
_LEASE = {
    "none": "there is none",
    "expired": "which has run out",
    "released": "which was given back",
    "dead": "whose holder has ended",
}
# A process that has reported its end ends Spark; after so long it hangs.
_LAST_WORD_SECONDS = 60.0


class Action(StrEnum):
    """The action to take for a stream."""

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
    """The action to take for one stream, and why.

    Attributes:
        sentence: The decision as a sentence for people.
        fix: The next command, where a person can do something.
        seconds: With BACKOFF, how long to wait still.
        failures: How many launches failed in a row, where that counts.
        ends: With ROLL, that the driver is to be ended whatever it runs; another is started once it has.
        halt: With HALT, its reason.
    """

    action: Action
    sentence: str
    fix: str | None = None
    seconds: float = 0.0
    failures: int = 0
    ends: bool = False
    halt: Halt | None = None


def file_problem(desired: DesiredState) -> str:
    """Reason why the stream's file is invalid, as a part of a decision's sentence."""
    return desired.problem.rstrip(".") or "its file cannot be read"


def file_fix(desired: DesiredState) -> str:
    """The next command of a decision where the stream's file is not valid."""
    return "frazil validate" if desired.file == "invalid" else "restore the folder streams/"


def _file_halt(desired: DesiredState) -> Halt:
    """The halt of a stream whose file is not valid."""
    return Halt.FILE_INVALID if desired.file == "invalid" else Halt.FILES_UNREADABLE


def in_seconds(seconds: float) -> str:
    """A time span for the sentence of a decision."""
    return f"{max(0.0, seconds):.0f} s"


def decide_restart(desired: DesiredState, actual: ActualState, now: float) -> Decision:
    """Decide about a stream that has no driver, and whose lease nobody holds."""
    stream, launch = desired.stream, actual.launch
    if desired.control.mode == "stopped":
        return Decision(Action.IDLE, "it is stopped", f"frazil start {stream}")
    if desired.control.mode == "paused":
        return Decision(
            Action.IDLE, f"it is paused, and {_ended(actual)}; resuming starts one", f"frazil resume {stream}"
        )
    if desired.file == "none":
        return Decision(Action.IDLE, "no file in streams/ names the stream; its state is kept")
    if not desired.continuous:
        return Decision(Action.IDLE, "its trigger is available_now: it runs when it is materialized")
    if desired.file == "unsure" or (desired.file == "invalid" and launch is None):
        return Decision(
            Action.HALT,
            f"no driver runs, and none is started, since {file_problem(desired)}",
            file_fix(desired),
            halt=_file_halt(desired),
        )
    if not desired.launchable:
        return Decision(
            Action.HALT,
            f"{_ended(actual)}, and none is started: {file_problem(desired)}; the configuration that was launched last "
            "cannot be launched any more either",
            "frazil validate",
            halt=Halt.NOT_LAUNCHABLE,
        )
    if launch is None:
        return Decision(Action.START, "it has not been launched before")
    frozen = "; its lease has run out, so whatever it does later is refused" if actual.driver_lives else ""
    as_it_was = f"; it starts as it last ran, since {file_problem(desired)}" if desired.file == "invalid" else ""
    ended = f"{_ended(actual)}{frozen}{as_it_was}"
    if desired.generation is not None and desired.generation != launch.generation:
        return Decision(Action.START, f"{ended}; its file has changed since, to generation {desired.generation}")
    return _after_an_end(desired, actual, now, ended)


def _after_an_end(desired: DesiredState, actual: ActualState, now: float, ended: str) -> Decision:
    stream, beat, restart = desired.stream, actual.heartbeat, desired.restart
    failures = failures_in_a_row(actual.launch, beat, restart.stable_after.total_seconds())
    group = actual.group_starts_in if actual.group_starts_in is not None else float("-inf")
    if not failures and group <= 0:
        return Decision(Action.START, ended)
    fenced = beat is not None and beat.state == "fenced" and not actual.awaited
    error = beat.error if beat is not None and not actual.awaited else None
    if error is not None and error.kind == "operator" and beat is not None and beat.state == "failed":
        return Decision(
            Action.HALT,
            f"{ended}. Starting it again would not help",
            _also(error.fix, "; then ", f"frazil start {stream}"),
            failures=failures,
            halt=Halt.ANSWER_NEEDED,
        )
    if failures > restart.max_restarts:
        if fenced:
            return Decision(
                Action.HALT,
                f"it failed {failures} times in a row, the last time because another driver took the stream; "
                f"{_ELSEWHERE}; {ended}",
                f"end the stream's drivers elsewhere; then frazil start {stream}",
                failures=failures,
                halt=Halt.FENCED_REPEATEDLY,
            )
        return Decision(
            Action.HALT,
            f"it failed {failures} times in a row, which is more than restart.max_restarts ({restart.max_restarts}); "
            f"{ended}",
            _also(error and error.fix, "; ", f"frazil start {stream}", ", after mending the cause"),
            failures=failures,
            halt=Halt.FAILED_REPEATEDLY,
        )
    if fenced and failures > 1:
        ended = f"{ended}; {_ELSEWHERE}"
    down = down_for(actual, now)
    own = backoff_seconds(desired, failures) - down
    left = max(own, group)
    if group > max(0.0, own):
        return Decision(
            Action.BACKOFF,
            f"the driver of its group is started again in {in_seconds(group)}; {ended}",
            f"frazil start {stream}, to start it at once",
            seconds=group,
            failures=failures,
        )
    if left > 0:
        return Decision(
            Action.BACKOFF,
            f"start {failures + 1} in a row in {in_seconds(left)}; {ended}",
            f"frazil start {stream}, to start it at once",
            seconds=left,
            failures=failures,
        )
    whose = "group's " if actual.group_starts_in is not None else ""
    if actual.kept and left + KEEPER_SECONDS > 0:
        return Decision(
            Action.WAIT,
            f"{ended}; its {whose}watchdog (process {actual.keeper}) starts it again",
            failures=failures,
        )
    return Decision(Action.START, ended, failures=failures)


def _also(fix: str | None, between: str, start: str, when: str = "") -> str:
    """The advice of an error, and to start the stream, unless the error says that itself."""
    if fix and re.search(rf"{re.escape(start)}(?![\w.-])", fix):
        return fix
    return f"{fix}{between}{start}{when}" if fix else f"{start}{when}"


def backoff_seconds(desired: DesiredState, failures: int) -> float:
    """Seconds to wait after this many failures in a row: 0, then `first_delay`, doubling up to `longest_delay`."""
    restart = desired.restart
    return pause_before(failures, restart.first_delay.total_seconds(), restart.longest_delay.total_seconds())


def down_for(actual: ActualState, now: float) -> float:
    """Seconds since the driver ended whose restart is decided; 0 at least, whatever the wall clock did meanwhile."""
    if actual.down_for is not None:
        return max(0.0, actual.down_for)
    if actual.awaited and actual.launch is not None:
        return max(0.0, now - actual.launch.at, actual.launched_for)
    return max(0.0, actual.heartbeat_age) if actual.heartbeat is not None else 0.0


def _ended(actual: ActualState) -> str:
    seen = actual.look
    why = f" ({seen.reason})" if seen is not None and seen.life == "ended" and seen.reason else ""
    return f"{_how_it_ended(actual)}{why}"


def _how_it_ended(actual: ActualState) -> str:
    beat, launch = actual.heartbeat, actual.launch
    if launch is not None and actual.awaited:
        if actual.unstarted:
            return f"attempt {launch.attempt} ended before its first report, or was never started"
        return f"attempt {launch.attempt} did not report within {START_SECONDS:.0f} s"
    if beat is None:
        return "no driver has run"
    if beat.state == "failed" and beat.error is not None:
        return f"attempt {beat.attempt} failed: {beat.error.message.rstrip('.')}"
    if beat.state == "fenced" and beat.error is not None:
        return f"attempt {beat.attempt} has been fenced: {beat.error.message.rstrip('.')}"
    if beat.final:
        return f"attempt {beat.attempt} has {'been ' if beat.state != 'finished' else ''}{beat.state}"
    if actual.driver_lives:
        return (
            f"attempt {beat.attempt} (process {beat.pid}) has sent no heartbeat for {in_seconds(actual.heartbeat_age)}"
        )
    return f"attempt {beat.attempt} ended without a report (process {beat.pid} on {beat.host})"


def decide(desired: DesiredState, actual: ActualState, now: float) -> Decision:
    """Decide about one stream.

    Args:
        now: Seconds since 1970.
    """
    if actual.problem:
        lives = "; its driver runs on" if actual.driver_lives else ""
        return Decision(Action.HALT, f"{actual.problem.rstrip('.')}{lives}.", actual.fix, halt=Halt.STATE_UNREADABLE)
    if actual.driver_lives and not actual.frozen:
        return _with_driver(desired, actual, now)
    if actual.starting and actual.launch is not None:
        return Decision(
            Action.WAIT,
            f"attempt {actual.launch.attempt} was launched {in_seconds(actual.launched_for)} ago and has not reported "
            f"yet{_as_seen(actual)}",
        )
    if actual.lease.state == "live":
        return _with_holder(desired, actual)
    return decide_restart(desired, actual, now)


def _as_seen(actual: ActualState) -> str:
    """The state of a driver as its launcher reports it, before any heartbeat."""
    if actual.launched_process is None or actual.look is None:
        return ""
    return f": {process_name(actual.launched_process)}" + (f": {actual.look.reason}" if actual.look.reason else "")


def _with_driver(desired: DesiredState, actual: ActualState, now: float) -> Decision:
    beat = actual.heartbeat
    assert beat is not None
    control = desired.control
    who = f"attempt {beat.attempt} (process {beat.pid} on {beat.host})"
    if not actual.fresh:
        return Decision(
            Action.WAIT,
            f"{who} has sent no heartbeat for {in_seconds(actual.heartbeat_age)} though its lease is renewed; once "
            "the lease runs out, another driver can be started beside it safely",
            f"frazil restart {desired.stream}",
        )
    asked_for = now - control.at
    asked_long_ago = not 0 <= asked_for <= _END_SECONDS
    if beat.state == "stopping":
        asked_just_now = not asked_long_ago and (control.mode == "stopped" or control.end_attempt >= beat.attempt)
        return _stopping(desired, actual, who, asked_just_now)
    if control.mode == "stopped":
        if asked_long_ago:
            return Decision(Action.STOP, f"{who} was asked to stop and still runs")
        return Decision(Action.WAIT, f"{who} was asked to stop {in_seconds(asked_for)} ago")
    if desired.file == "none":
        return Decision(Action.STOP, f"no file in streams/ names the stream any more; {who} ends, its state is kept")
    if desired.file == "valid" and not desired.continuous:
        return Decision(Action.STOP, f"its trigger is available_now, which needs no driver; {who} ends")
    if control.end_attempt >= beat.attempt:
        if asked_long_ago and desired.file == "valid":
            return Decision(Action.ROLL, f"{who} was asked to give way and still runs")
        if asked_long_ago and desired.file == "invalid" and desired.launchable:
            # Whoever waited for its end is gone. Another one is started as it was launched, so no file is needed.
            return Decision(Action.ROLL, f"{who} was asked to give way and still runs, and is made to end", ends=True)
        return Decision(Action.WAIT, f"{who} was asked to give way", f"frazil restart {desired.stream}")
    if actual.unheld and desired.file != "unsure" and desired.launchable:
        return _without_lease(actual, who)
    stall = find_stall(beat, desired.stalled_after)
    if stall is not None and _is_replaced(desired, stall):
        return Decision(Action.ROLL, f"{who} {stall.sentence}; it is ended, and another takes its place", ends=True)
    if desired.file != "valid":
        return Decision(
            Action.HALT,
            f"{who} runs on under generation {beat.generation}; nothing is changed, since {file_problem(desired)}",
            "frazil validate",
            halt=_file_halt(desired),
        )
    rolls = desired.generation != beat.generation
    if control.mode == "paused":
        later = f"; generation {desired.generation} is rolled out when it is resumed" if rolls else ""
        return Decision(Action.ADOPT, f"{who} is paused{later}", f"frazil resume {desired.stream}")
    if beat.state == "starting" and beat.beat_wall - beat.state_since < START_SECONDS:
        return Decision(Action.WAIT, f"{who} is starting")
    if rolls:
        return Decision(Action.ROLL, f"its file has changed from generation {beat.generation} to {desired.generation}")
    if stall is not None:
        return Decision(Action.ADOPT, f"{who} {stall.sentence}", f"frazil restart {desired.stream}")
    return Decision(Action.ADOPT, f"{who} {_doing(actual)}")


def _is_replaced(desired: DesiredState, stall: Stall) -> bool:
    """Whether a driver has stalled for so long, and so surely, that another one takes its place."""
    if desired.restart.stalled_after is None or not stall.sure or stall.seconds <= desired.stalled_after:
        return False
    return desired.control.mode == "running" and desired.file != "unsure" and desired.launchable


def _stopping(desired: DesiredState, actual: ActualState, who: str, asked_just_now: bool) -> Decision:
    """Decide about a driver that ends. Whoever asked it to may be gone, and if it hangs, somebody has to end it."""
    beat = actual.heartbeat
    assert beat is not None
    # On its own clock, in which it said both; and whichever way that was set meanwhile.
    ending_for = abs(beat.beat_wall - beat.state_since)
    unheld = actual.unheld and actual.unheld_for > UNHELD_SECONDS
    if asked_just_now or (ending_for <= _END_SECONDS and not unheld):
        return Decision(Action.WAIT, f"{who} finishes its batch and ends")
    sentence = f"{who} has been finishing its batch for {in_seconds(ending_for)}"
    if desired.control.mode == "stopped" or desired.file == "none":
        return Decision(Action.STOP, f"{sentence}, and is made to end")
    if desired.file == "valid" and not desired.continuous:
        return Decision(Action.STOP, f"{sentence}, and is made to end")
    if desired.file == "unsure":
        return Decision(
            Action.HALT,
            f"{sentence}; nothing is changed, since {file_problem(desired)}",
            file_fix(desired),
            halt=_file_halt(desired),
        )
    return Decision(Action.ROLL, f"{sentence}, and is made to end, so that another can take its place", ends=True)


def _without_lease(actual: ActualState, who: str) -> Decision:
    """A driver that works on without the lease: it lands nothing, or is about to be refused."""
    lease = actual.lease
    whose = f"which {lease.name} holds" if lease.state == "live" else _LEASE[lease.state]
    sentence = f"{who} has worked without the stream's lease ({whose}) for {in_seconds(actual.unheld_for)}"
    if actual.unheld_for <= UNHELD_SECONDS:
        return Decision(Action.WAIT, f"{sentence}; it takes it again, gives way, or is ended soon")
    return Decision(Action.ROLL, f"{sentence}, so it is ended and another takes its place", ends=True)


def _doing(actual: ActualState) -> str:
    beat = actual.heartbeat
    assert beat is not None
    if beat.state == "retrying" and beat.error is not None:
        return f"tries again after: {beat.error.message}"
    words = {"starting": "is still starting", "running": "runs", "paused": "resumes"}
    return words.get(beat.state, f"is {beat.state}")


def _with_holder(desired: DesiredState, actual: ActualState) -> Decision:
    """The lease is held by a process that is no living driver."""
    holder = actual.lease.name
    if actual.lease_is_the_drivers and actual.heartbeat is not None and actual.heartbeat.final:
        said = f"{holder} has reported its end ({actual.heartbeat.state})"
        if actual.heartbeat_age <= _LAST_WORD_SECONDS:
            return Decision(Action.WAIT, f"{said} and is ending")
        if _driver_wanted(desired) and desired.file == "valid":
            return Decision(Action.ROLL, f"{said} and does not end, so another takes its place")
        if desired.control.mode == "stopped" or desired.file == "none" or not desired.continuous:
            return Decision(Action.STOP, f"{said} and does not end")
        return Decision(Action.WAIT, f"{said} and does not end", f"frazil restart {desired.stream}")
    if not _driver_wanted(desired):
        return Decision(Action.IDLE, f"{holder} runs the stream once; no driver is wanted")
    return Decision(
        Action.WAIT,
        f"{holder} holds the stream's lease and is no driver (a `frazil run`, or a run of Dagster); a driver is "
        "started when it ends",
    )


def _driver_wanted(desired: DesiredState) -> bool:
    return desired.continuous and desired.control.mode == "running" and desired.file in ("valid", "invalid")
