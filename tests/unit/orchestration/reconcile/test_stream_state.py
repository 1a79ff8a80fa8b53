"""The word for the state of a stream, over what can come together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.heartbeat import (
    Heartbeat,
    LastError,
    State,
    Work,
)
from jobs.streaming.supervision.documents.launches import Launch, LaunchedProcess
from jobs.streaming.supervision.processes.actual import ActualState, LeaseHolder
from jobs.streaming.supervision.state.desired import DesiredState
from jobs.streaming.supervision.state.observation import Observation
from orchestration.reconcile.stream_state import state_word


def beat(state: State = "running", *, kind: Any = None, **fields: Any) -> Heartbeat:
    error = LastError("no", kind, 0.0) if kind else None
    return Heartbeat("payments", "g", 1, 5, "6", "b", "h", 0.0, state, 0.0, 0.0, 0.0, error=error, **fields)


def observed(newest: Heartbeat | None = None, *, lives: bool = False, **facts: Any) -> Observation:
    desired = DesiredState("payments", "valid", control=facts.pop("control", ControlRequest()))
    known: dict[str, Any] = {
        "heartbeat": newest,
        "process": lives if newest is not None else None,
        "launch": Launch(1, "g", "f", 0, 0.0) if newest is not None or lives else None,
        "launched_for": 1000.0,
    }
    if lives:
        known |= {"launched_process": LaunchedProcess(1, "g", 5, "6", "b", "h", 0.0), "launched_process_lives": True}
    settings: Any = None
    return Observation("payments", StreamFolder.at(Path("/none")), settings, desired, ActualState(**known | facts))


LATER = Launch(2, "g", "f", 0, 0.0)
NOTED = LaunchedProcess(2, "g", 5, "6", "b", "h", 0.0)
STRANGER = LeaseHolder("live", 1, 77, "7", "b", "h")


@pytest.mark.parametrize(
    ("now", "word"),
    [
        (observed(), "never ran"),
        (observed(lives=True), "starting"),
        (observed(beat("starting"), lives=True), "starting"),
        (observed(beat(), lives=True), "waiting"),
        (observed(beat(work=Work(busy_since=1.0)), lives=True), "running"),
        (observed(beat("paused"), lives=True), "paused"),
        (observed(beat("retrying", kind="away"), lives=True), "retrying"),
        (observed(beat("stopping"), lives=True), "stopping"),
        (observed(beat("stopped"), lives=True), "stopping"),
        (observed(beat(), lives=True, control=ControlRequest("stopped")), "stopping"),
        (observed(beat(), lives=True, control=ControlRequest(end_attempt=1)), "stopping"),
        (observed(beat(), lives=True, heartbeat_age=31.0), "frozen"),
        # Its machine may be gone, though its lease and its launcher do not say so yet.
        (observed(beat(), lives=True, heartbeat_age=16.0, lease=LeaseHolder("live", 1, 5, "6", "b", "h")), "frozen"),
        (observed(beat("stopped"), lives=True, heartbeat_age=16.0), "stopping"),
        (observed(beat("failed"), lives=True, heartbeat_age=31.0), "frozen"),
        (observed(beat(), control=ControlRequest("paused")), "paused"),
        (observed(beat("failed", kind="error"), control=ControlRequest("stopped")), "stopped"),
        (observed(beat("failed", kind="error")), "failed"),
        (observed(beat("failed", kind="operator")), "halted"),
        (observed(beat("fenced")), "fenced"),
        (observed(beat("terminated")), "idle"),
        (observed(beat("running")), "dead"),
        (observed(beat("stopped"), launch=LATER), "dead"),
        (observed(None, launch=LATER), "dead"),
        # Launched on another host, or the process has not been noted yet; and known to be gone.
        (observed(None, launch=LATER, launched_process=NOTED, launched_for=80.0), "starting"),
        (observed(None, launch=LATER, launched_for=4.0), "starting"),
        (observed(None, launch=LATER, launched_for=4.0, control=ControlRequest("stopped")), "stopped"),
        (observed(None, launch=LATER, launched_process=NOTED, launched_process_lives=False, launched_for=1.0), "dead"),
        (observed(beat("stopped"), lease=STRANGER), "draining"),
    ],
)
def test_the_word_for_a_stream(now: Observation, word: str) -> None:
    assert state_word(now) == word


def test_what_the_supervisor_gave_up_is_halted() -> None:
    assert state_word(observed(beat("failed", kind="error")), "halt") == "halted"
    assert state_word(observed(None, launch=LATER), "halt") == "halted"


def test_a_stream_without_a_driver_is_not_dead_if_none_is_wanted() -> None:
    assert state_word(observed(beat("running")), "idle") == "idle"
    assert state_word(observed(beat("failed", kind="error")), "idle") == "failed"
