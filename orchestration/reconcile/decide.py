"""Decision about a stream from its desired and its actual state: the pure function `decide`.

START is never decided while a live lease exists. What keeps a commit safe if the facts are wrong all the same is not
this function, but the lease's epoch: the claims in the tables refuse whoever is not the newest driver.
"""

from __future__ import annotations

from jobs.supervise.actual import START_SECONDS, ActualState
from jobs.supervise.desired import DesiredState
from jobs.supervise.launches import process_name
from jobs.supervise.stall import Stall, find_stall
from orchestration.reconcile.decide_restart import decide_restart
from orchestration.reconcile.decision import UNHELD_SECONDS, Action, Decision, file_fix, file_problem, in_seconds

# A driver that was asked to end finishes its batch; after so long the request is made anew, with its own grace.
_END_SECONDS = 150.0
_LEASE = {
    "none": "there is none",
    "expired": "which has run out",
    "released": "which was given back",
    "dead": "whose holder is gone",
}
# A process that has said its last word ends Spark; after so long it hangs.
_LAST_WORD_SECONDS = 60.0


def decide(desired: DesiredState, actual: ActualState, now: float) -> Decision:
    """What to do about one stream.

    Args:
        desired: What is wanted.
        actual: What there is.
        now: Seconds since 1970.
    """
    if actual.problem:
        lives = "; its driver runs on" if actual.driver_lives else ""
        return Decision(Action.HALT, f"{actual.problem.rstrip('.')}{lives}.", actual.fix)
    if actual.driver_lives and not actual.frozen:
        return _with_driver(desired, actual, now)
    if actual.starting and actual.launch is not None:
        return Decision(
            Action.WAIT,
            f"attempt {actual.launch.attempt} was launched {in_seconds(actual.launched_for)} ago and has not said "
            f"anything yet{_as_seen(actual)}",
        )
    if actual.lease.state == "live":
        return _with_holder(desired, actual)
    return decide_restart(desired, actual, now)


def _as_seen(actual: ActualState) -> str:
    """What the launcher of a driver says of it, which nobody has heard of yet."""
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
            f"{who} has not beaten for {in_seconds(actual.heartbeat_age)} though its lease is renewed; once the lease "
            "runs out, another driver can be started beside it safely",
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
            return Decision(Action.ROLL, f"{who} was asked to make room and still runs")
        if asked_long_ago and desired.file == "invalid" and desired.launchable:
            # Whoever waited for its end is gone. Another one is started as it was launched, so no file is needed.
            return Decision(Action.ROLL, f"{who} was asked to make room and still runs, and is made to end", ends=True)
        return Decision(Action.WAIT, f"{who} was asked to make room", f"frazil restart {desired.stream}")
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
    """A driver that ends. Whoever asked it to may be gone, and it may hang: then somebody has to see to its end."""
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
            Action.HALT, f"{sentence}; nothing is changed, since {file_problem(desired)}", file_fix(desired)
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
        said = f"{holder} has said its last word ({actual.heartbeat.state})"
        if actual.heartbeat_age <= _LAST_WORD_SECONDS:
            return Decision(Action.WAIT, f"{said} and is ending")
        if _driver_wanted(desired) and desired.file == "valid":
            return Decision(Action.ROLL, f"{said} and does not end, so another takes its place")
        if desired.control.mode == "stopped" or desired.file == "none" or not desired.continuous:
            return Decision(Action.STOP, f"{said} and does not end")
        return Decision(Action.WAIT, f"{said} and does not end", f"frazil restart {desired.stream}")
    if not _driver_wanted(desired):
        return Decision(Action.IDLE, f"{holder} drains the stream; no driver is wanted")
    return Decision(
        Action.WAIT,
        f"{holder} holds the stream's lease and is no driver (a `frazil run`, or a drain in Dagster); a driver is "
        "started when it ends",
    )


def _driver_wanted(desired: DesiredState) -> bool:
    return desired.continuous and desired.control.mode == "running" and desired.file in ("valid", "invalid")
