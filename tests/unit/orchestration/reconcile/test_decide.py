"""What to do about a stream, over every combination of wish, file, lease, driver and history that matters."""

from __future__ import annotations

import pytest

from jobs.config.services.trigger import Restart
from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.heartbeat import LastError, Work
from jobs.streaming.supervision.processes.actual import ActualState
from jobs.streaming.supervision.state.desired import DesiredState
from orchestration.reconcile.decide import Action, backoff_seconds, decide
from tests.unit.orchestration.reconcile.sample_states import (
    GENERATION,
    NOW,
    OTHER,
    actual,
    beat,
    desired,
    failed,
    gone,
    launch,
    lease,
)

PAUSED = ControlRequest("paused", action="pause", at=NOW - 10)
STOPPED = ControlRequest("stopped", action="stop", at=NOW - 10)
STOPPED_BEFORE = ControlRequest("stopped", at=NOW - 500)
STOPPED_LATER = ControlRequest("stopped", at=NOW + 500)
MAKE_ROOM = ControlRequest(end_attempt=3, action="roll", at=NOW - 10)
STRANGER = {"lease": lease(pid=77), "heartbeat": None, "process": None}
INVALID = {"file": "invalid", "generation": None, "problem": "orders.yaml:3: tabel: unknown key."}
UNSURE = {"file": "unsure", "generation": None, "problem": "the folder streams/ is empty"}
NEVER = {"lease": lease("none"), "heartbeat": None, "process": None, "launch": None, "launched_for": 0.0}
AWAITED = {"launch": launch(attempt=4), "launched_for": 20.0}
AWAY = LastError("Kafka does not answer", "away", NOW)
STARTS = beat("starting", state_since=NOW - 300)
LONG = Work(busy_since=NOW - 9000, got_on_at=NOW - 10)
HUNG = Work(busy_since=NOW - 800, got_on_at=NOW - 700)
KEEPS = Restart(stalled_after=None)
SEVEN = {"t": {"0": 7}}

CASES: list[tuple[str, DesiredState, ActualState, Action, str]] = [
    # Nothing there.
    ("never launched", desired(), ActualState(), Action.START, "not been launched before"),
    ("never launched, paused", desired(control=PAUSED), ActualState(), Action.IDLE, "paused"),
    ("never launched, stopped", desired(control=STOPPED), ActualState(), Action.IDLE, "stopped"),
    ("never launched, invalid", desired(**INVALID), ActualState(), Action.HALT, "tabel: unknown key"),
    ("available_now", desired(continuous=False), ActualState(), Action.IDLE, "available_now"),
    ("available_now, drained now", desired(continuous=False), ActualState(**STRANGER), Action.IDLE, "once; no driver"),
    # A driver that runs.
    ("runs", desired(), actual(), Action.ADOPT, "attempt 3 (process 4242 on here) runs"),
    ("retries", desired(), actual(beat("retrying", error=AWAY)), Action.ADOPT, "Kafka does not answer"),
    ("other generation", desired(generation=OTHER), actual(), Action.ROLL, "from generation aaaaaaaaaaaa to bbbb"),
    ("retries under an old file", desired(generation=OTHER), actual(beat("retrying")), Action.ROLL, "changed"),
    ("starts", desired(), actual(beat("starting", state_since=NOW - 20)), Action.WAIT, "starting"),
    ("starts for long", desired(), actual(STARTS), Action.ADOPT, "still starting"),
    ("hangs in its start", desired(), actual(beat("starting")), Action.ROLL, "it has been starting for 999 s"),
    (
        "starts under an old file",
        desired(generation=OTHER),
        actual(beat("starting", state_since=NOW - 20)),
        Action.WAIT,
        "starting",
    ),
    (
        "starts before its lease",
        desired(),
        actual(STARTS, lease=lease("none")),
        Action.ADOPT,
        "start",
    ),
    ("paused", desired(control=PAUSED), actual(beat("paused")), Action.ADOPT, "is paused"),
    ("paused, file changed", desired(control=PAUSED, generation=OTHER), actual(), Action.ADOPT, "when it is resumed"),
    ("resumed", desired(), actual(beat("paused")), Action.ADOPT, "resumes"),
    ("asked to stop", desired(control=STOPPED), actual(), Action.WAIT, "asked to stop 10 s ago"),
    ("asked to stop for long", desired(control=STOPPED_BEFORE), actual(), Action.STOP, "still runs"),
    ("asked by a clock ahead", desired(control=STOPPED_LATER), actual(), Action.STOP, "still runs"),
    ("gives way", desired(control=MAKE_ROOM), actual(), Action.WAIT, "give way"),
    (
        "makes no room",
        desired(control=ControlRequest(end_attempt=3, at=NOW - 500)),
        actual(),
        Action.ROLL,
        "asked to give way and still runs",
    ),
    (
        "makes no room, and its file is wrong by now",
        desired(**INVALID, control=ControlRequest(end_attempt=3, at=NOW - 500)),
        actual(),
        Action.ROLL,
        "asked to give way and still runs, and is made to end",
    ),
    (
        "makes no room, and nothing could take its place",
        desired(**INVALID, launchable=False, control=ControlRequest(end_attempt=3, at=NOW - 500)),
        actual(),
        Action.WAIT,
        "give way",
    ),
    ("made room before", desired(control=ControlRequest(end_attempt=2, at=NOW - 5)), actual(), Action.ADOPT, "runs"),
    ("available_now with a driver", desired(continuous=False), actual(), Action.STOP, "available_now"),
    # Its file.
    ("no file", desired(file="none", generation=None), actual(), Action.STOP, "no file"),
    ("no file, no driver", desired(file="none", generation=None), gone(), Action.IDLE, "state is kept"),
    ("folder away", desired(**UNSURE), actual(), Action.HALT, "runs on under generation"),
    ("folder away, driver gone", desired(**UNSURE), gone(), Action.HALT, "streams/ is empty"),
    ("invalid file", desired(**INVALID), actual(), Action.HALT, "runs on under generation aaaaaaaaaaaa"),
    ("invalid file, driver gone", desired(**INVALID), gone(), Action.START, "as it last ran, since orders.yaml:3"),
    (
        "invalid file, nothing to launch",
        desired(**INVALID, launchable=False),
        gone(),
        Action.HALT,
        "cannot be launched any more either",
    ),
    ("invalid file, crashed twice", desired(**INVALID), gone(launch=launch(failures=1)), Action.BACKOFF, "tabel"),
    ("invalid file, stopped", desired(**INVALID, control=STOPPED), gone(), Action.IDLE, "stopped"),
    # The driver is gone.
    ("killed", desired(), gone(), Action.START, "without a report"),
    ("killed, paused", desired(control=PAUSED), gone(), Action.IDLE, "resuming starts one"),
    ("killed, stopped", desired(control=STOPPED), gone(), Action.IDLE, "is stopped"),
    ("killed, lease still runs", desired(), gone(lease=lease("live")), Action.WAIT, "holds the stream's lease"),
    ("ended for the next", desired(), gone(beat("stopped"), lease=lease("released")), Action.START, "stopped"),
    ("ended by SIGTERM", desired(), gone(beat("terminated"), lease=lease("released")), Action.START, "terminated"),
    ("failed once", desired(), gone(failed(), lease=lease("released")), Action.START, "the table was dropped"),
    ("failed twice", desired(), gone(failed(), launch=launch(failures=1)), Action.BACKOFF, "start 3 in a row"),
    (
        "failed twice, waited",
        desired(),
        gone(failed(), launch=launch(failures=1), down_for=10.0),
        Action.START,
        "the table was dropped",
    ),
    (
        "failed after a stable time",
        desired(),
        gone(failed(since=NOW - 700), launch=launch(failures=6)),
        Action.START,
        "the table was dropped",
    ),
    ("crash loop", desired(), gone(failed(), launch=launch(failures=7)), Action.HALT, "failed 8 times in a row"),
    (
        "crash loop, file changed",
        desired(generation=OTHER),
        gone(failed(), launch=launch(failures=7)),
        Action.START,
        "changed since",
    ),
    ("no restart allowed", desired(restart=Restart(max_restarts=0)), gone(failed()), Action.HALT, "restart.max"),
    ("operator", desired(), gone(failed("operator")), Action.HALT, "would not help"),
    ("operator, file changed", desired(generation=OTHER), gone(failed("operator")), Action.START, "changed since"),
    ("operator answered", desired(), gone(failed("operator"), **AWAITED), Action.WAIT, "attempt 4 was launched"),
    # Its keeper starts it again.
    ("killed, kept", desired(), gone(keeper=9), Action.WAIT, "its watchdog (process 9) starts it again"),
    ("killed, keeper hangs", desired(), gone(keeper=9, down_for=21.0), Action.START, "without a report"),
    ("killed, kept, file changed", desired(generation=OTHER), gone(keeper=9), Action.START, "changed since"),
    ("killed, kept, stopped", desired(control=STOPPED), gone(keeper=9), Action.IDLE, "stopped"),
    ("killed, kept, drained by hand", desired(), gone(keeper=9, lease=lease(pid=77)), Action.WAIT, "is no driver"),
    ("killed in vain, kept", desired(), gone(keeper=9, launch=launch(failures=1), down_for=4.0), Action.BACKOFF, "6 s"),
    ("in vain, its turn", desired(), gone(keeper=9, launch=launch(failures=1), down_for=29.0), Action.WAIT, "9)"),
    ("in vain, hangs", desired(), gone(keeper=9, launch=launch(failures=1), down_for=31.0), Action.START, "report"),
    ("killed for ever, kept", desired(), gone(keeper=9, launch=launch(failures=7)), Action.HALT, "8 times in a row"),
    ("failed, kept", desired(), gone(failed(), keeper=9, down_for=1.0), Action.START, "the table was dropped"),
    (
        "launched by its keeper, died, kept",
        desired(),
        gone(keeper=9, launch=launch(attempt=4), launched_process=None, launched_for=6.0, down_for=6.0),
        Action.WAIT,
        "its watchdog",
    ),
    # The driver of its group, which starts it again, is itself started by a keeper, after its own pause.
    ("group killed", desired(), gone(keeper=9, group_starts_in=-1.0), Action.WAIT, "its group's watchdog (process 9)"),
    ("group pauses", desired(), gone(keeper=9, group_starts_in=40.0), Action.BACKOFF, "of its group is started again"),
    ("group pauses, no keeper", desired(), gone(group_starts_in=40.0), Action.BACKOFF, "again in 40 s"),
    ("group is up again", desired(), gone(keeper=9, group_starts_in=-5.0, down_for=60.0), Action.WAIT, "(process 9)"),
    ("group has been up", desired(), gone(keeper=9, group_starts_in=-21.0, down_for=60.0), Action.START, "a report"),
    ("group gone, no keeper", desired(), gone(group_starts_in=-1.0), Action.START, "without a report"),
    ("ended well, group pauses", desired(), gone(beat("stopped"), group_starts_in=40.0), Action.BACKOFF, "in 40 s"),
    ("failed, group lives", desired(), gone(failed(), keeper=9, group_starts_in=-900.0), Action.START, "dropped"),
    ("in group, operator", desired(), gone(failed("operator"), keeper=9, group_starts_in=9.0), Action.HALT, "not help"),
    (
        "in group, its own pause is longer",
        desired(),
        gone(keeper=9, group_starts_in=3.0, launch=launch(failures=1), down_for=4.0),
        Action.BACKOFF,
        "start 3 in a row in 6 s",
    ),
    # A launch.
    (
        "launched, no process",
        desired(),
        gone(launch=launch(attempt=4), launched_process=None, launched_for=4.0),
        Action.WAIT,
        "launched 4 s ago",
    ),
    (
        "launched, no process for long",
        desired(),
        gone(launch=launch(attempt=4), launched_process=None, launched_for=6.0),
        Action.START,
        "was never started",
    ),
    ("launched", desired(), gone(**AWAITED), Action.WAIT, "launched 20 s ago"),
    ("launched and stopped", desired(control=STOPPED), gone(**AWAITED), Action.WAIT, "launched 20 s ago"),
    ("launched in vain", desired(), gone(launch=launch(attempt=4), launched_for=91.0), Action.START, "did not report"),
    (
        "launched in vain again",
        desired(),
        gone(launch=launch(attempt=4, failures=2, at=NOW - 91), launched_for=91.0, down_for=1.0),
        Action.BACKOFF,
        "in 19 s",
    ),
    ("first launch", desired(), actual(**NEVER | {"launch": launch(), "launched_for": 5.0}), Action.WAIT, "5 s ago"),
    # Silence.
    ("silent, lease renewed", desired(), actual(heartbeat_age=40.0), Action.WAIT, "has sent no heartbeat for 40 s"),
    ("silent, lease expired", desired(), actual(heartbeat_age=40.0, lease=lease("expired")), Action.START, "refused"),
    (
        "silent, lease expired, paused",
        desired(control=PAUSED),
        actual(heartbeat_age=40.0, lease=lease("expired")),
        Action.IDLE,
        "paused",
    ),
    # Another host.
    ("elsewhere", desired(), actual(process=None), Action.ADOPT, "runs"),
    ("elsewhere, silent", desired(), actual(process=None, heartbeat_age=40.0), Action.WAIT, "has sent no heartbeat"),
    (
        "elsewhere, lease expired",
        desired(),
        actual(process=None, heartbeat_age=40.0, lease=lease("expired")),
        Action.START,
        "ended without a report",
    ),
    # Somebody else.
    ("drained by hand", desired(), actual(**STRANGER), Action.WAIT, "is no driver"),
    ("drained by hand after a crash", desired(), gone(lease=lease(pid=77)), Action.WAIT, "process 77 on here"),
    ("drained by hand, stopped", desired(control=STOPPED), gone(lease=lease(pid=77)), Action.IDLE, "once; no driver"),
    ("ends", desired(), actual(beat("failed")), Action.WAIT, "is ending"),
    ("does not end", desired(), actual(beat("failed"), heartbeat_age=61.0), Action.ROLL, "does not end"),
    (
        "does not end, stopped",
        desired(control=STOPPED),
        actual(beat("failed"), heartbeat_age=61.0),
        Action.STOP,
        "does not end",
    ),
    ("does not end, invalid", desired(**INVALID), actual(beat("failed"), heartbeat_age=61.0), Action.WAIT, "not end"),
    # Stalled: reported, and replaced where it cannot be long work.
    (
        "one batch for long, its tasks are not seen",
        desired(),
        actual(beat(work=Work(busy_since=NOW - 700))),
        Action.ADOPT,
        "at one batch for 699 s",
    ),
    ("one batch that gets on", desired(), actual(beat(work=LONG)), Action.ADOPT, "runs"),
    ("one batch that hangs", desired(), actual(beat(work=HUNG)), Action.ROLL, "got on for 699 s; it is ended"),
    ("one batch that hangs, none", desired(restart=KEEPS), actual(beat(work=HUNG)), Action.ADOPT, "699 s"),
    ("hung batch, paused", desired(control=PAUSED), actual(beat(work=HUNG)), Action.ADOPT, "is paused"),
    ("one batch that hangs, invalid file", desired(**INVALID), actual(beat(work=HUNG)), Action.ROLL, "place"),
    ("one batch that hangs, folder away", desired(**UNSURE), actual(beat(work=HUNG)), Action.HALT, "runs on"),
    (
        "its JVM does not answer",
        desired(),
        actual(beat(work=Work(unanswered_since=NOW - 31))),
        Action.ADOPT,
        "has stalled since 2027-01-15T07:59:29Z: its JVM has not answered for 30 s",
    ),
    (
        "its JVM does not answer for long",
        desired(),
        actual(beat(work=Work(unanswered_since=NOW - 602))),
        Action.ROLL,
        "its JVM has not answered for 601 s; it is ended",
    ),
    (
        "nothing though records wait",
        desired(),
        actual(beat(work=Work(lag=SEVEN, lag_at=NOW, waiting_since=NOW - 900, last_commit_at=NOW - 800))),
        Action.ROLL,
        "no batch for 799 s though 7 records wait",
    ),
    (
        "the first records after a quiet night",
        desired(),
        actual(beat(work=Work(lag=SEVEN, lag_at=NOW, waiting_since=NOW - 2, last_commit_at=NOW - 800))),
        Action.ADOPT,
        "runs",
    ),
    (
        "records wait, and a driver of an earlier version does not say since when",
        desired(),
        actual(beat(work=Work(lag=SEVEN, lag_at=NOW, last_commit_at=NOW - 800))),
        Action.ADOPT,
        "no batch for 799 s",
    ),
    (
        "nothing waits",
        desired(),
        actual(beat(work=Work(lag={"t": {"0": 0}}, lag_at=NOW, last_commit_at=NOW - 800))),
        Action.ADOPT,
        "runs",
    ),
    # Files that cannot be read.
    ("control damaged", desired(), gone(problem="control.json is damaged"), Action.HALT, "damaged"),
    ("control damaged, runs", desired(), actual(problem="control.json is damaged"), Action.HALT, "runs on"),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "there", "action", "words"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_every_combination_that_matters(wanted: DesiredState, there: ActualState, action: Action, words: str) -> None:
    decision = decide(wanted, there, NOW)
    assert (decision.action, words in decision.sentence) == (action, True), decision.sentence


def test_a_halt_names_the_last_error_and_the_command_to_go_on() -> None:
    loop = decide(desired(), gone(failed(), launch=launch(failures=7)), NOW)
    assert "the table was dropped" in loop.sentence
    assert loop.fix == "frazil accept orders; frazil start orders, after mending the cause"
    answer = decide(desired(), gone(failed("operator")), NOW)
    assert answer.fix == "frazil accept orders; then frazil start orders"
    of_another = LastError("the table is claimed", "operator", NOW - 1, "frazil start orders_eu")
    answer = decide(desired(), gone(failed("operator", error=of_another)), NOW)
    assert answer.fix == "frazil start orders_eu; then frazil start orders"


def test_delays_double_up_to_the_longest() -> None:
    delays = [backoff_seconds(desired(), failures) for failures in range(1, 10)]
    assert delays == [0, 10, 20, 40, 80, 160, 320, 600, 600]
    assert backoff_seconds(desired(), 10_000) == 600


def test_the_generation_named_is_the_one_that_runs() -> None:
    assert GENERATION in decide(desired(**INVALID), actual(), NOW).sentence
