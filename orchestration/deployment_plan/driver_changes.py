"""Change of a stream's driver: what the supervisor would do about it now, and what an operator has asked for. Pure."""

from __future__ import annotations

from collections.abc import Collection

from jobs.streaming.supervision.processes.actual import ActualState
from jobs.streaming.supervision.state.desired import DesiredState
from orchestration.deployment_plan.change import Change, ChangeClass, Doer, StepAction
from orchestration.reconcile.decide import Action, Decision

_RESTART = ChangeClass.RESTART
_SHOWN_KEYS = 5


def driver_changes(
    desired: DesiredState,
    actual: ActualState,
    decision: Decision,
    *,
    file_changed: bool,
    new: bool,
    settings_keys: Collection[str] | None = None,
) -> list[Change]:
    """Changes of a stream's driver.

    Args:
        desired: Desired state, by the file and the operator.
        actual: Actual state.
        decision: The supervisor's decision from both.
        file_changed: Whether the file differs from the one that the driver was launched with.
        new: Whether the stream has never run.
        settings_keys: Keys of the settings that have changed since the driver was launched; None if that is not known.
    """
    stream, driver = desired.stream, actual.driver
    waits = desired.control.mode != "running"
    if desired.file == "none":
        return [_ended(stream, "no file names the stream any more")] if driver is not None else []
    if waits and desired.continuous and not new:
        return [_as_asked(desired, driver is not None, actual, file_changed)]
    match decision.action:
        case Action.START if new:
            return [_change(desired, "a driver starts", StepAction.START)]
        case Action.START:
            why = "no driver runs" if not file_changed else "no driver runs; one starts by the file as it is now"
            return [_change(desired, why, StepAction.START, drift=not file_changed, detail=decision.sentence)]
        case Action.ROLL if decision.ends:
            said = "its driver does not get on, or ends and hangs, and is replaced"
            return [_operators(stream, said, f"frazil restart {stream}", decision)]
        case Action.ROLL:
            return [_rolled(desired, actual, _cause(file_changed, settings_keys))]
        case Action.STOP:
            return [_ended(stream, "its trigger is available_now, which needs no driver")]
        case Action.HALT:
            said = "the stream is halted" if driver is None else "its driver runs on as it was launched"
            return [_operators(stream, said, decision.fix, decision)]
        case Action.BACKOFF:
            said = "its driver failed, and is started again"
            return [Change(stream, "driver", "driver", _RESTART, Doer.FRAZIL, said, decision.fix, drift=True)]
        case Action.WAIT if driver is not None and driver.generation != desired.generation:
            said = "its driver gives way to another one"
            return [Change(stream, "driver", "driver", _RESTART, Doer.FRAZIL, said, detail=decision.sentence)]
        case Action.ADOPT if decision.fix is not None:
            return [_operators(stream, "its driver does not get on", decision.fix, decision)]
        case _:
            return []


def _change(desired: DesiredState, sentence: str, step: StepAction, *, drift: bool = False, detail: str = "") -> Change:
    """Start of a driver, with the file's generation: it shows that a saved plan of a new stream is outdated."""
    stream = desired.stream
    return Change(
        stream,
        "driver",
        "driver",
        _RESTART,
        Doer.APPLY,
        sentence,
        f"frazil apply {stream}",
        after=desired.generation,
        drift=drift,
        step=step,
        detail=detail,
    )


def _cause(file_changed: bool, settings_keys: Collection[str] | None) -> str:
    """Reason why a driver is replaced, as the end of a sentence; empty if the stream's file has changed."""
    if settings_keys:
        named, more = ", ".join(list(settings_keys)[:_SHOWN_KEYS]), len(settings_keys) - _SHOWN_KEYS
        return f": the settings have changed since it was launched ({named}{f' and {more} more' if more > 0 else ''})"
    if file_changed:
        return ""
    if settings_keys is None:
        return ": the settings, or frazil's release, have changed since it was launched"
    return ": frazil's release, or a secret in a URL of the settings, has changed since it was launched"


def _rolled(desired: DesiredState, actual: ActualState, cause: str) -> Change:
    """Change that replaces a driver of another generation."""
    runs = actual.heartbeat.generation if actual.heartbeat is not None else None
    said = f"its driver runs generation {runs}, and is replaced by one of generation {desired.generation}{cause}"
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
    """Change that a person has to make."""
    return Change(
        stream, "driver", "driver", _RESTART, Doer.OPERATOR, sentence, fix, drift=True, detail=decision.sentence
    )


def _as_asked(desired: DesiredState, lives: bool, actual: ActualState, file_changed: bool) -> Change:
    """Change of a stream that its operator has paused or stopped, though its file wants it to run."""
    control, stream = desired.control, desired.stream
    runs = actual.driver.generation if actual.driver is not None else None
    later = file_changed or (lives and runs != desired.generation)
    said = f"it is {control.mode}{control.origin}, and its file starts it"
    if later:
        said += "; the file takes effect once it goes on"
    command = "resume" if control.mode == "paused" else "start"
    return Change(stream, "driver", "driver", _RESTART, Doer.OPERATOR, said, f"frazil {command} {stream}", drift=True)
