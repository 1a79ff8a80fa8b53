"""What to do about a driver that hangs while it ends, works without the lease, or is fenced time and again."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.config.services.trigger import Restart
from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.heartbeat import FINAL, LastError, Work
from jobs.streaming.supervision.documents.launches import failures_in_a_row
from jobs.streaming.supervision.processes.actual import ActualState, LeaseHolder
from jobs.streaming.supervision.state.desired import DesiredState
from orchestration.reconcile.cursor import StreamCursor
from orchestration.reconcile.decide import KEEPER_SECONDS, Action, backoff_seconds, decide, down_for
from orchestration.sensors.reconcile import control_run
from tests.unit.orchestration.reconcile.sample_states import (
    GENERATION,
    NOW,
    OTHER,
    actual,
    beat,
    desired,
    failed,
    fenced,
    gone,
    launch,
    lease,
    note,
)

ENDS = beat("stopping", state_since=NOW - 100)
HANGS = beat("stopping")
STARTS = beat("starting", state_since=NOW - 300)
UNHELD = {"lease": lease("expired"), "unheld_for": 91.0}
PAUSED = ControlRequest("paused", action="pause", at=NOW - 10)
STOPPED = ControlRequest("stopped", action="stop", at=NOW - 10)
STOPPED_BEFORE = ControlRequest("stopped", at=NOW - 500)
MAKE_ROOM = ControlRequest(end_attempt=3, action="roll", at=NOW - 10)
INVALID = {"file": "invalid", "generation": None, "problem": "orders.yaml:3: tabel: unknown key."}
UNSURE = {"file": "unsure", "generation": None, "problem": "the folder streams/ is empty"}
AWAY = LastError("Kafka does not answer", "away", NOW)

CASES: list[tuple[str, DesiredState, ActualState, Action, str]] = [
    # It ends.
    ("finishes its batch", desired(), actual(ENDS), Action.WAIT, "finishes its batch"),
    ("SIGTERM, hangs", desired(), actual(HANGS), Action.ROLL, "finishing its batch for 999 s"),
    ("asked to stop, hangs", desired(control=STOPPED_BEFORE), actual(HANGS), Action.STOP, "end"),
    ("asked to stop again", desired(control=STOPPED), actual(HANGS), Action.WAIT, "finishes its batch"),
    ("gives way, hangs", desired(control=ControlRequest(end_attempt=3, at=0)), actual(HANGS), Action.ROLL, "another"),
    ("gives way, asked again", desired(control=MAKE_ROOM), actual(HANGS), Action.WAIT, "finishes"),
    ("hangs, no file", desired(file="none", generation=None), actual(HANGS), Action.STOP, "made to end"),
    ("hangs, available_now", desired(continuous=False), actual(HANGS), Action.STOP, "made to end"),
    ("hangs, invalid file", desired(**INVALID), actual(HANGS), Action.ROLL, "made to end"),
    ("hangs, folder away", desired(**UNSURE), actual(HANGS), Action.HALT, "nothing is changed"),
    ("hangs, paused", desired(control=PAUSED), actual(HANGS), Action.ROLL, "made to end"),
    ("ends, clock set on", desired(), actual(beat("stopping", beat_wall=NOW + 9e6)), Action.ROLL, "made to end"),
    ("ends, clock set back", desired(), actual(beat("stopping", state_since=NOW + 9e6)), Action.ROLL, "made to"),
    ("ends, without its lease", desired(), actual(ENDS, **UNHELD), Action.ROLL, "made to end"),
    ("ends, released its lease", desired(), actual(ENDS, lease=lease("released")), Action.WAIT, "finishes"),
    # At work without the lease.
    ("beats, lease expired", desired(), actual(lease=lease("expired")), Action.WAIT, "without the stream's lease"),
    *(
        (f"beats, lease {state} for long", desired(), actual(lease=lease(state), unheld_for=91.0), Action.ROLL, "ended")
        for state in ("expired", "released", "none", "dead")
    ),
    (
        "beats, lease is another's",
        desired(),
        actual(lease=lease(pid=77), unheld_for=91.0),
        Action.ROLL,
        "which process 77 on here holds) for 91 s",
    ),
    ("without lease, invalid file", desired(**INVALID), actual(**UNHELD), Action.ROLL, "takes its place"),
    ("without lease, nothing to launch", desired(**INVALID, launchable=False), actual(**UNHELD), Action.HALT, "on"),
    ("without lease, folder away", desired(**UNSURE), actual(**UNHELD), Action.HALT, "runs on"),
    ("without lease, stopped", desired(control=STOPPED), actual(**UNHELD), Action.WAIT, "asked to stop"),
    ("without lease, elsewhere", desired(), actual(process=None, **UNHELD), Action.ROLL, "takes its place"),
    ("without lease, paused", desired(control=PAUSED), actual(beat("paused"), **UNHELD), Action.ADOPT, "paused"),
    ("without lease, retries", desired(), actual(beat("retrying", error=AWAY), **UNHELD), Action.ADOPT, "Kafka"),
    ("without lease, starts", desired(), actual(STARTS, **UNHELD), Action.ADOPT, "still starting"),
    ("silent, another's lease", desired(), actual(heartbeat_age=40.0, lease=lease(pid=77)), Action.WAIT, "no driver"),
    # It gave way.
    ("fenced", desired(), gone(fenced(), lease=lease("released")), Action.START, "fenced: stream orders: another"),
    ("fenced again", desired(), gone(fenced(), launch=launch(failures=1)), Action.BACKOFF, "another deployment"),
    ("fenced for ever", desired(), gone(fenced(), launch=launch(failures=7)), Action.HALT, "another deployment"),
    (
        "fenced after a month without a record",
        desired(),
        gone(fenced(since=NOW - 3e6), launch=launch(failures=7)),
        Action.START,
        "fenced",
    ),
    (
        "killed after a month without a record",
        desired(),
        gone(beat(since=NOW - 3e6), launch=launch(failures=7)),
        Action.START,
        "without a report",
    ),
    ("finished", desired(), gone(beat("finished"), lease=lease("released")), Action.START, "has finished"),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "there", "action", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_driver_in_trouble_is_not_left_to_itself(
    wanted: DesiredState, there: ActualState, action: Action, words: str
) -> None:
    decision = decide(wanted, there, NOW)
    assert (decision.action, words in decision.sentence) == (action, True), decision.sentence


def test_a_driver_that_is_fenced_again_and_again_backs_off_and_halts() -> None:
    newest, delays, actions = launch(), [], []
    for attempt in range(3, 13):
        there = gone(fenced(attempt=attempt), lease=lease("released"), launch=newest, down_for=0.0)
        decision = decide(desired(), there, NOW)
        actions.append(decision.action)
        delays.append(decision.seconds)
        failures = failures_in_a_row(newest, there.heartbeat, 600.0)
        newest = launch(attempt=attempt + 1, failures=failures)
    assert actions == [Action.START, *[Action.BACKOFF] * 6, *[Action.HALT] * 3]
    assert delays[:7] == [0, 10, 20, 40, 80, 160, 320]
    halted = decide(desired(), gone(fenced(), launch=launch(failures=7)), NOW)
    assert halted.fix == "end the stream's drivers elsewhere; then frazil start orders"


def test_what_ends_a_driver_of_the_same_file_is_no_roll() -> None:
    ended = decide(desired(), actual(**UNHELD), NOW)
    assert control_run("orders", ended, 1).run_key == "orders:let_go:1"
    rolled = decide(desired(generation=OTHER), actual(), NOW)
    assert control_run("orders", rolled, 1).run_key == "orders:roll:1"


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
