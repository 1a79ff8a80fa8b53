"""What holds of every decision, whatever the facts, and of every sequence of them, whatever the clocks do."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.spec.trigger import Restart
from jobs.supervise.actual import ActualState
from jobs.supervise.control_request import ControlRequest
from jobs.supervise.desired import DesiredState
from jobs.supervise.heartbeat import FINAL, LastError, Work
from jobs.supervise.lease_holder import LeaseHolder
from orchestration.reconcile.cursor import StreamCursor
from orchestration.reconcile.decide import decide
from orchestration.reconcile.decide_restart import backoff_seconds, down_for
from orchestration.reconcile.decision import KEEPER_SECONDS, Action
from tests.unit.orchestration.reconcile.sample_states import (
    GENERATION,
    NOW,
    OTHER,
    beat,
    desired,
    failed,
    gone,
    launch,
    note,
)

STATES = ["starting", "running", "paused", "retrying", "stopping", *sorted(FINAL)]
instants = st.floats(NOW - 1e7, NOW + 1e7)
ages = st.floats(0, 1e6)
errors = st.none() | st.builds(
    LastError, st.just("it broke"), st.sampled_from(["operator", "away", "error"]), instants, st.none() | st.just("do")
)
beats = st.builds(
    lambda state, **changes: beat(state, **changes),
    st.sampled_from(STATES),
    generation=st.sampled_from([GENERATION, OTHER]),
    attempt=st.integers(1, 5),
    since=instants,
    state_since=instants,
    beat_wall=instants,
    error=errors,
    work=st.builds(
        Work, batches=st.integers(0, 2), busy_since=st.none() | instants, unanswered_since=st.none() | instants
    ),
)
launches = st.builds(
    lambda **changes: launch(**changes),
    attempt=st.integers(1, 5),
    generation=st.sampled_from([GENERATION, OTHER]),
    failures=st.integers(0, 12),
    at=instants,
)
actuals = st.builds(
    ActualState,
    lease=st.builds(
        LeaseHolder,
        st.sampled_from(["none", "live", "expired", "released", "dead"]),
        st.integers(0, 9),
        st.sampled_from([4242, 77]),
        st.just("100"),
        st.just("boot"),
        st.just("here"),
    ),
    heartbeat=st.none() | beats,
    heartbeat_age=ages,
    process=st.sampled_from([True, False, None]),
    launch=st.none() | launches,
    launched_for=ages,
    down_for=st.none() | ages,
    unheld_for=ages,
    keeper=st.none() | st.just(9),
    group_starts_in=st.none() | ages | st.floats(-100.0, 0.0),
    launched_process=st.none() | st.builds(note, st.integers(1, 5)),
    launched_process_lives=st.sampled_from([True, False, None]),
    problem=st.sampled_from(["", "", "", "lease-00000001.json is no lease"]),
)
desireds = st.builds(
    lambda **changes: desired(**changes),
    file=st.sampled_from(["valid", "invalid", "none", "unsure"]),
    generation=st.sampled_from([GENERATION, OTHER, None]),
    launchable=st.booleans(),
    continuous=st.booleans(),
    control=st.builds(
        ControlRequest, st.sampled_from(["running", "paused", "stopped"]), st.integers(0, 6), at=instants
    ),
    restart=st.builds(Restart, max_restarts=st.integers(0, 9)),
)


@settings(max_examples=1000)
@given(desireds, actuals, instants)
def test_what_holds_of_every_decision(wanted: DesiredState, there: ActualState, now: float) -> None:
    decision = decide(wanted, there, now)
    assert decision.sentence
    if decision.action in (Action.START, Action.BACKOFF):
        assert there.lease.state != "live"
        assert wanted.control.mode == "running"
        assert wanted.continuous
        assert wanted.file in ("valid", "invalid")
        assert wanted.launchable or there.launch is None
        assert not (there.driver_lives and there.fresh)
    if decision.action is Action.BACKOFF:
        longest = max(wanted.restart.longest_delay.total_seconds(), there.group_starts_in or 0.0)
        assert 0 < decision.seconds <= longest
    if decision.action is Action.STOP and wanted.file == "unsure":
        assert (
            wanted.control.mode == "stopped"
            or (there.heartbeat is not None and there.heartbeat.final)
            or not wanted.continuous
        )
    if decision.action is Action.ROLL:
        assert there.driver_lives or (there.heartbeat is not None and there.heartbeat.final)
        assert wanted.file == "valid" or (decision.ends and wanted.file == "invalid")
        assert wanted.control.mode != "stopped"
    if "keeper (" in decision.sentence:
        assert decision.action is Action.WAIT
        assert there.keeper is not None
        left = backoff_seconds(wanted, decision.failures) - down_for(there, now)
        assert max(left, left if there.group_starts_in is None else there.group_starts_in) > -KEEPER_SECONDS
    if there.problem:
        assert decision.action is Action.HALT
    if decision.action is Action.HALT:
        assert there.lease.state != "live" or there.driver_lives or there.problem


@settings(max_examples=200)
@given(st.lists(st.floats(-1e6, 1e6), min_size=120, max_size=120), st.integers(1, 7))
def test_a_jumping_clock_neither_starts_in_a_tight_loop_nor_waits_too_long(jumps: list[float], failures: int) -> None:
    wanted, memory = desired(), StreamCursor()
    delay = backoff_seconds(wanted, failures + 1)
    down = gone(failed(), launch=launch(failures=failures))
    started: float | None = None
    for tick, jump in enumerate(jumps):
        clock = 5000.0 + 10.0 * tick
        decision = decide(wanted, memory.timed(down, clock), NOW + jump)
        if decision.action is Action.START:
            started = 10.0 * tick
            break
        assert decision.action is Action.BACKOFF or failures >= 7
    if failures < 7:
        assert started is not None
        assert delay <= started <= delay + 10
