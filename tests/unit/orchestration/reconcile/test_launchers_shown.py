"""A driver in a pod as the supervisor decides about it, and as pages show it."""

from __future__ import annotations

from jobs.streaming.supervision.documents.launches import LaunchedProcess
from jobs.streaming.supervision.launchers.launcher import Look
from orchestration.reconcile.check_outcomes import _driver_alive
from orchestration.reconcile.decide import Action, decide
from orchestration.reconcile.state_metadata import state_metadata
from orchestration.reconcile.stream_state import StreamState
from tests.unit.orchestration.reconcile.sample_states import (
    GENERATION,
    NOW,
    actual,
    beat,
    desired,
    failed,
    launch,
    lease,
)

POD = "lake/frazil-orders-3-abc123"
NOTED = LaunchedProcess(3, GENERATION, 0, "", "", "", NOW - 1000, None, "kubernetes", POD)
LAUNCHED = launch(launcher="kubernetes", handle=POD)


def test_one_that_waits_for_a_node_is_waited_for_and_says_so() -> None:
    pending = actual(
        None,
        launch=LAUNCHED,
        launched_process=NOTED,
        launched_process_lives=True,
        look=Look("alive", "Unschedulable (0/3 nodes)"),
        lease=lease("none"),
        process=None,
    )
    decision = decide(desired(), pending, NOW)
    assert decision.action is Action.WAIT
    assert decision.sentence.endswith(f"has not reported yet: pod {POD}: Unschedulable (0/3 nodes)")


def test_one_that_has_ended_is_started_again_and_the_reason_is_told() -> None:
    gone = actual(
        beat(beat_wall=NOW - 40),
        launch=LAUNCHED,
        launched_process=NOTED,
        launched_process_lives=False,
        look=Look("ended", "OOMKilled, exit status 137"),
        lease=lease("expired"),
        process=False,
        heartbeat_age=40.0,
    )
    decision = decide(desired(), gone, NOW)
    assert decision.action is Action.START
    assert decision.sentence.endswith("ended without a report (process 4242 on here) (OOMKilled, exit status 137)")


def test_a_page_says_where_it_is() -> None:
    runs = actual(launch=LAUNCHED, launched_process=NOTED)
    stands = StreamState("running", NOW, None, NOW, True, NOTED)
    told = state_metadata(stands, runs.heartbeat)
    assert (told["driver_launcher"], told["driver_handle"]) == ("kubernetes", POD)
    outcome = _driver_alive(desired(), runs, decide(desired(), runs, NOW))
    assert (outcome.figures["launcher"], outcome.figures["handle"]) == ("kubernetes", POD)
    ended = actual(failed(), lease=lease("released"), process=False)
    outcome = _driver_alive(desired(), ended, decide(desired(), ended, NOW))
    assert outcome.figures["last_error"] == "the table was dropped"
    assert "launcher" not in outcome.figures
    assert "driver_launcher" not in state_metadata(StreamState("running", NOW, None, NOW, True), runs.heartbeat)
