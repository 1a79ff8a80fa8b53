"""Change of a stream's driver: what the supervisor would do about it now, and what an operator has asked for. Pure."""

from __future__ import annotations

from jobs.streaming.supervision.processes.actual import ActualState
from jobs.streaming.supervision.state.desired import DesiredState
from orchestration.deployment_plan.change import Change, ChangeClass, Doer, StepAction
from orchestration.reconcile.decide import Action, Decision

_RESTART, _NOTHING = ChangeClass.RESTART, ChangeClass.NOTHING


def driver_changes(
    desired: DesiredState, actual: ActualState, decision: Decision, *, file_changed: bool, new: bool
) -> list[Change]:
    """What becomes of a stream's driver.

    Args:
        desired: What the file and the operator want.
        actual: What there is.
        decision: What the supervisor decides of the two.
        file_changed: Whether the file says something else than what the driver was launched with.
        new: Whether the stream has never run.
    """
    stream, driver = desired.stream, actual.driver
    waits = desired.control.mode != "running"
    if desired.file == "none":
        return [_ended(stream, "no file names the stream any more")] if driver is not None else []
    if waits and desired.continuous and not new:
        return [_as_asked(desired, driver is not None, actual, file_changed)]
    match decision.action:
        case Action.START if new:
            return [_change(stream, "a driver starts", StepAction.START)]
        case Action.START:
            why = "no driver runs" if not file_changed else "no driver runs; one starts by the file as it is now"
            return [_change(stream, why, StepAction.START, drift=not file_changed, detail=decision.sentence)]
        case Action.ROLL if decision.ends:
            said = "its driver does not get on, or ends and hangs, and is replaced"
            return [_operators(stream, said, f"frazil restart {stream}", decision)]
        case Action.ROLL:
            return [_rolled(desired, actual, file_changed)]
        case Action.STOP:
            return [_ended(stream, "its trigger is available_now, which needs no driver")]
        case Action.HALT:
            said = "the stream is halted" if driver is None else "its driver runs on as it was launched"
            return [_operators(stream, said, decision.fix, decision)]
        case Action.BACKOFF:
            said = "its driver failed, and is started again"
            return [Change(stream, "driver", "driver", _RESTART, Doer.FRAZIL, said, decision.fix, drift=True)]
        case Action.WAIT if driver is not None and driver.generation != desired.generation:
            said = "its driver makes room for another one"
            return [Change(stream, "driver", "driver", _RESTART, Doer.FRAZIL, said, detail=decision.sentence)]
        case Action.ADOPT if decision.fix is not None:
            return [_operators(stream, "its driver does not get on", decision.fix, decision)]
        case _:
            return []


def _change(stream: str, sentence: str, step: StepAction, *, drift: bool = False, detail: str = "") -> Change:
    return Change(
        stream,
        "driver",
        "driver",
        _RESTART,
        Doer.APPLY,
        sentence,
        f"frazil apply {stream}",
        drift=drift,
        step=step,
        detail=detail,
    )


def _rolled(desired: DesiredState, actual: ActualState, file_changed: bool) -> Change:
    """A driver that is replaced, as it was launched under another generation."""
    runs = actual.heartbeat.generation if actual.heartbeat is not None else None
    why = "" if file_changed else ": the settings, or frazil's release, have changed since it was launched"
    said = f"its driver runs generation {runs}, and is replaced by one of generation {desired.generation}{why}"
    return Change(
        desired.stream,
        "driver",
        "driver",
        _RESTART,
        Doer.APPLY,
        said,
        f"frazil restart {desired.stream}",
        runs,
        desired.generation,
        step=StepAction.ROLL,
    )


def _ended(stream: str, why: str) -> Change:
    said = f"its driver ends after its batch: {why}"
    return Change(stream, "driver", "driver", _RESTART, Doer.APPLY, said, f"frazil stop {stream}", step=StepAction.END)


def _operators(stream: str, sentence: str, fix: str | None, decision: Decision) -> Change:
    """Something that a person has to see to."""
    return Change(
        stream, "driver", "driver", _RESTART, Doer.OPERATOR, sentence, fix, drift=True, detail=decision.sentence
    )


def _as_asked(desired: DesiredState, lives: bool, actual: ActualState, file_changed: bool) -> Change:
    """A stream that its operator has paused or stopped: the file wants it to run, and the operator's word stands."""
    control, stream = desired.control, desired.stream
    runs = actual.driver.generation if actual.driver is not None else None
    later = file_changed or (lives and runs != desired.generation)
    said = f"it is {control.mode}{control.origin}, and the file says that it runs"
    if later:
        said += "; the file takes effect once it goes on"
    command = "resume" if control.mode == "paused" else "start"
    return Change(stream, "driver", "driver", _RESTART, Doer.OPERATOR, said, f"frazil {command} {stream}", drift=True)
