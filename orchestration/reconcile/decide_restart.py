"""Decision about a stream without a driver: start one at once, after a backoff, or leave it to a person."""

from __future__ import annotations

import re

from jobs.supervise.actual import START_SECONDS, ActualState
from jobs.supervise.desired import DesiredState
from jobs.supervise.launches import failures_in_a_row, pause_before
from orchestration.reconcile.decision import KEEPER_SECONDS, Action, Decision, file_fix, file_problem, in_seconds

_ELSEWHERE = "another deployment, or another host, seems to take it time and again"


def decide_restart(desired: DesiredState, actual: ActualState, now: float) -> Decision:
    """What to do about a stream that has no driver, and whose lease nobody holds."""
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
        return Decision(Action.IDLE, "its trigger is available_now: it is drained when it is materialized")
    if desired.file == "unsure" or (desired.file == "invalid" and launch is None):
        return Decision(
            Action.HALT, f"no driver runs, and none is started, since {file_problem(desired)}", file_fix(desired)
        )
    if not desired.launchable:
        return Decision(
            Action.HALT,
            f"{_ended(actual)}, and none is started: {file_problem(desired)}; the configuration that was launched last "
            "cannot be launched any more either",
            "frazil validate",
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
        )
    if failures > restart.max_restarts:
        if fenced:
            return Decision(
                Action.HALT,
                f"it failed {failures} times in a row, the last time because another driver took the stream; "
                f"{_ELSEWHERE}; {ended}",
                f"end the stream's drivers elsewhere; then frazil start {stream}",
                failures=failures,
            )
        return Decision(
            Action.HALT,
            f"it failed {failures} times in a row, which is more than restart.max_restarts ({restart.max_restarts}); "
            f"{ended}",
            _also(error and error.fix, "; ", f"frazil start {stream}", ", after mending the cause"),
            failures=failures,
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
            f"{ended}; its {whose}keeper (process {actual.keeper}) starts it again",
            failures=failures,
        )
    return Decision(Action.START, ended, failures=failures)


def _also(fix: str | None, between: str, start: str, when: str = "") -> str:
    """What an error says to do, and to start the stream, unless the error says that itself."""
    if fix and re.search(rf"{re.escape(start)}(?![\w.-])", fix):
        return fix
    return f"{fix}{between}{start}{when}" if fix else f"{start}{when}"


def backoff_seconds(desired: DesiredState, failures: int) -> float:
    """How long to wait after this many failures in a row: 0, then `first_delay`, doubling up to `longest_delay`."""
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
            return f"attempt {launch.attempt} ended before it said anything, or was never started"
        return f"attempt {launch.attempt} did not say anything within {START_SECONDS:.0f} s"
    if beat is None:
        return "no driver has run"
    if beat.state == "failed" and beat.error is not None:
        return f"attempt {beat.attempt} failed: {beat.error.message}"
    if beat.state == "fenced" and beat.error is not None:
        return f"attempt {beat.attempt} has been fenced: {beat.error.message.rstrip('.')}"
    if beat.final:
        return f"attempt {beat.attempt} has {'been ' if beat.state != 'finished' else ''}{beat.state}"
    if actual.driver_lives:
        return f"attempt {beat.attempt} (process {beat.pid}) has not beaten for {in_seconds(actual.heartbeat_age)}"
    return f"attempt {beat.attempt} is gone without a last word (process {beat.pid} on {beat.host})"
