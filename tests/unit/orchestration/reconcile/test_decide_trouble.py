"""What to do about a driver that hangs while it ends, works without the lease, or is fenced time and again."""

from __future__ import annotations

import pytest

from jobs.supervise.actual import ActualState
from jobs.supervise.control_request import ControlRequest
from jobs.supervise.desired import DesiredState
from jobs.supervise.heartbeat import LastError
from jobs.supervise.launches import failures_in_a_row
from orchestration.reconcile.decide import Action, decide
from orchestration.sensors.reconcile import control_run
from tests.unit.orchestration.reconcile.sample_states import (
    NOW,
    OTHER,
    actual,
    beat,
    desired,
    fenced,
    gone,
    launch,
    lease,
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
    ("makes room, hangs", desired(control=ControlRequest(end_attempt=3, at=0)), actual(HANGS), Action.ROLL, "another"),
    ("makes room, asked again", desired(control=MAKE_ROOM), actual(HANGS), Action.WAIT, "finishes"),
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
        "without a last word",
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
