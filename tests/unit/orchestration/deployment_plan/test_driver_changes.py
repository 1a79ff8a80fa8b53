"""Change of a driver, for every decision of the supervisor and every wish of an operator."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.processes.actual import ActualState
from jobs.streaming.supervision.state.desired import DesiredState
from orchestration.deployment_plan.change import ChangeClass, Doer, StepAction
from orchestration.deployment_plan.driver_changes import driver_changes
from orchestration.reconcile.decide import Action, Decision
from tests.unit.orchestration.reconcile.sample_states import actual

RUNNING = actual()
WANTED = DesiredState("payments", "valid", "b" * 12)


def desired(**more: Any) -> DesiredState:
    fields: dict[str, Any] = {"stream": "payments", "file": "valid", "generation": "b" * 12}
    return DesiredState(**fields | more)


def decided(action: Action, fix: str | None = None, *, ends: bool = False) -> Decision:
    return Decision(action, "it is so", fix, ends=ends)


@pytest.mark.parametrize(
    ("decision", "doer", "step", "drift"),
    [
        (decided(Action.START), Doer.APPLY, StepAction.START, True),
        (decided(Action.ROLL), Doer.APPLY, StepAction.ROLL, False),
        (decided(Action.ROLL, ends=True), Doer.OPERATOR, None, True),
        (decided(Action.STOP), Doer.APPLY, StepAction.END, False),
        (decided(Action.HALT, "frazil validate"), Doer.OPERATOR, None, True),
        (decided(Action.BACKOFF), Doer.FRAZIL, None, True),
        (decided(Action.ADOPT, "frazil restart payments"), Doer.OPERATOR, None, True),
    ],
)
def test_what_the_supervisor_decides_is_the_change(
    decision: Decision, doer: Doer, step: StepAction | None, drift: bool
) -> None:
    (change,) = driver_changes(WANTED, ActualState(), decision, file_changed=False, new=False)
    assert (change.kind, change.doer, change.step, change.drift) == (ChangeClass.RESTART, doer, step, drift)
    assert "it is so" not in change.identity


@pytest.mark.parametrize("decision", [decided(Action.ADOPT), decided(Action.IDLE), decided(Action.WAIT)])
def test_a_stream_that_is_as_wanted_has_no_change(decision: Decision) -> None:
    assert driver_changes(WANTED, ActualState(), decision, file_changed=False, new=False) == []


def test_a_new_stream_starts_and_is_no_drift() -> None:
    (change,) = driver_changes(WANTED, ActualState(), decided(Action.START), file_changed=False, new=True)
    assert (change.step, change.drift, change.sentence) == (StepAction.START, False, "a driver starts")


@pytest.mark.parametrize(
    ("mode", "action", "file_changed"),
    list(itertools.product(("paused", "stopped"), Action, (True, False))),
)
def test_what_an_operator_asked_for_stands_whatever_is_decided(mode: Any, action: Action, file_changed: bool) -> None:
    control = ControlRequest(mode=mode, by="ann@desk", reason="disk")
    (change,) = driver_changes(
        desired(control=control), ActualState(), decided(action), file_changed=file_changed, new=False
    )
    assert (change.doer, change.step, change.drift) == (Doer.OPERATOR, None, True)
    assert f"{mode} by ann@desk: disk" in change.sentence
    assert ("takes effect once it goes on" in change.sentence) == file_changed
    assert change.fix == ("frazil resume payments" if mode == "paused" else "frazil start payments")


@pytest.mark.parametrize("action", list(Action))
def test_without_a_file_only_a_driver_that_lives_is_a_change(action: Action) -> None:
    gone = desired(file="none", generation=None)
    assert driver_changes(gone, ActualState(), decided(action), file_changed=False, new=False) == []
    (change,) = driver_changes(gone, RUNNING, decided(action), file_changed=False, new=False)
    assert (change.step, change.fix) == (StepAction.END, "frazil stop payments")


def test_a_roll_names_both_generations_and_says_if_no_file_is_its_cause() -> None:
    assert RUNNING.heartbeat is not None
    runs = RUNNING.heartbeat.generation
    for file_changed in (True, False):
        (change,) = driver_changes(WANTED, RUNNING, decided(Action.ROLL), file_changed=file_changed, new=False)
        assert (change.before, change.after) == (runs, "b" * 12)
        assert ("the settings, or frazil's release" in change.sentence) != file_changed


@pytest.mark.parametrize("file_changed", [True, False])
def test_a_roll_names_the_settings_that_changed(file_changed: bool) -> None:
    how = {"file_changed": file_changed, "new": False}
    (change,) = driver_changes(
        WANTED, RUNNING, decided(Action.ROLL), settings_keys=["kafka.options", "spark.conf"], **how
    )
    assert change.sentence.endswith(": the settings have changed since it was launched (kafka.options, spark.conf)")
    (change,) = driver_changes(WANTED, RUNNING, decided(Action.ROLL), settings_keys=list("abcdefg"), **how)
    assert change.sentence.endswith("(a, b, c, d, e and 2 more)")


def test_a_roll_whose_file_and_settings_are_the_same_is_of_the_release() -> None:
    (change,) = driver_changes(WANTED, RUNNING, decided(Action.ROLL), file_changed=False, new=False, settings_keys=[])
    assert ": frazil's release, or a secret in a URL of the settings, has changed" in change.sentence
