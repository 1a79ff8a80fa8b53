"""Whether a keeper starts its driver again: every request, launch, last heartbeat and history that matters."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.heartbeat import FINAL, Heartbeat, Work
from jobs.streaming.supervision.documents.launches import Launch, LaunchedProcess
from jobs.streaming.supervision.keeper.keeper_restart import KeeperDecision, RestartPolicy, decide_restart
from jobs.streaming.supervision.processes.actual import ActualState, LeaseHolder

POLICY = RestartPolicy(max_restarts=7, first_delay=10.0, longest_delay=600.0, stable_after=600.0)
STATES = ["starting", "running", "paused", "retrying", "stopping", *sorted(FINAL)]


def beat(state: Any = "running", attempt: int = 3, **changes: Any) -> Heartbeat:
    fields: dict[str, Any] = {"since": 0.0, "state_since": 0.0, "beat": 0.0, "beat_wall": 60.0}
    return Heartbeat("payments", "g", attempt, 1, "1", "boot", "here", state=state, **fields | changes)


def launch(attempt: int = 3, failures: int = 0) -> Launch:
    return Launch(attempt, "g", "payments.yaml", failures, 0.0)


def process(attempt: int = 3) -> LaunchedProcess:
    return LaunchedProcess(attempt, "g", 1, "1", "boot", "here", 0.0)


class Seen(NamedTuple):
    """A stream as the watchdog of attempt 3 finds it; `driven`: a driver lives, `held`: others have the lease."""

    control: ControlRequest = ControlRequest()
    launch: Launch | None = launch()
    process: LaunchedProcess | None = process()
    heartbeat: Heartbeat | None = beat()
    driven: bool = False
    held: bool = False
    named: bool = True
    attempt: int = 3

    def decide(self, policy: RestartPolicy = POLICY) -> KeeperDecision:
        actual = ActualState(
            lease=LeaseHolder(state="live", pid=77, started="77") if self.held else LeaseHolder(),
            heartbeat=self.heartbeat,
            process=self.driven,
            launch=self.launch,
            launched_process=self.process,
            launched_process_lives=False,
        )
        return decide_restart(self.attempt, self.control, actual, policy, file_exists=self.named)


seen = Seen


@pytest.mark.parametrize(
    ("there", "restart", "pause", "why"),
    [
        (seen(), True, 0, ""),
        (seen(heartbeat=beat("starting")), True, 0, ""),
        (seen(heartbeat=beat("retrying")), True, 0, ""),
        (seen(heartbeat=beat("stopping")), True, 0, ""),
        (seen(process=None), True, 0, ""),
        (seen(heartbeat=None), True, 0, ""),
        (seen(heartbeat=beat(attempt=2)), True, 0, ""),
        (seen(launch=launch(failures=1)), True, 10, ""),
        (seen(launch=launch(failures=3)), True, 40, ""),
        (seen(launch=launch(failures=6)), True, 320, ""),
        (seen(launch=launch(failures=6), heartbeat=beat(work=Work(batches=1))), True, 0, ""),
        (seen(launch=launch(failures=6), heartbeat=beat(work=Work(recovered=1))), True, 0, ""),
        (seen(launch=launch(failures=7)), False, 0, "8 times in a row"),
        (seen(control=ControlRequest("stopped")), False, 0, "is stopped"),
        (seen(control=ControlRequest("paused")), False, 0, "is paused"),
        (seen(control=ControlRequest(end_attempt=3, action="roll")), False, 0, "asked to end (roll)"),
        (seen(control=ControlRequest(end_attempt=2, action="roll")), True, 0, ""),
        (seen(launch=launch(4)), False, 0, "attempt 4 was launched"),
        (seen(process=process(4)), False, 0, "attempt 4 was launched"),
        (seen(heartbeat=beat(attempt=4)), False, 0, "attempt 4 was launched"),
        (seen(launch=launch(2)), False, 0, "was launched"),
        (seen(launch=None), False, 0, "was launched"),
        *((seen(heartbeat=beat(state)), False, 0, f"its end ({state})") for state in sorted(FINAL)),
        (seen(heartbeat=beat("failed", attempt=2)), True, 0, ""),
        (seen(driven=True), False, 0, "a driver runs"),
        (seen(held=True), False, 0, "something else"),
        (seen(named=False), False, 0, "file is missing"),
    ],
)
def test_what_is_started_again(there: Seen, restart: bool, pause: float, why: str) -> None:
    decision = there.decide()
    assert (not decision.refusal, decision.pause, why in decision.refusal) == (restart, pause, True), decision


@given(
    st.builds(
        Seen,
        st.builds(ControlRequest, st.sampled_from(["running", "paused", "stopped"]), st.integers(0, 5)),
        st.none() | st.builds(launch, st.integers(1, 4), st.integers(0, 9)),
        st.none() | st.builds(process, st.integers(1, 4)),
        st.none() | st.builds(beat, st.sampled_from(STATES), st.integers(1, 4), work=st.builds(Work, st.none())),
        st.booleans(),
        st.booleans(),
        st.booleans(),
        st.integers(1, 4),
    ),
    st.integers(0, 9),
)
def test_what_holds_of_every_restart(there: Seen, max_restarts: int) -> None:
    policy = RestartPolicy(max_restarts, 10.0, 600.0, 600.0)
    decision = there.decide(policy)
    if decision.refusal:
        return
    assert there.control.mode == "running"
    assert there.control.end_attempt < there.attempt
    assert there.launch is not None
    assert there.launch.attempt == there.attempt
    assert all(each is None or each.attempt <= there.attempt for each in (there.process, there.heartbeat))
    assert not (there.heartbeat is not None and there.heartbeat.attempt == there.attempt and there.heartbeat.final)
    assert not (there.driven and there.heartbeat is not None and not there.heartbeat.final)
    assert not there.held
    assert there.named
    assert 1 <= decision.failures <= policy.max_restarts
    assert 0 <= decision.pause <= policy.longest_delay
