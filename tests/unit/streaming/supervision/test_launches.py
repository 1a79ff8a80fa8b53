"""How many launches failed in a row: counted by what a driver got done, not by how long it ran."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, State, Work
from jobs.streaming.supervision.documents.launches import Launch, failures_in_a_row, write_launch
from jobs.streaming.supervision.processes.actual import UNSTARTED_SECONDS, read_actual

STABLE = 600.0
LAUNCH = Launch(attempt=3, generation="g", file="f", failures=5, at=0.0)
COMMITTED, RECOVERED = Work(batches=1), Work(recovered=1)


def beat(state: State, ran: float, work: Work, attempt: int = 3) -> Heartbeat:
    return Heartbeat(
        "payments",
        "g",
        attempt,
        *(1, "1", "boot", "here"),
        since=1000.0,
        state=state,
        state_since=1000.0,
        beat=0.0,
        beat_wall=1000.0 + ran,
        work=work,
    )


@pytest.mark.parametrize(
    ("newest", "failures"),
    [
        (None, 6),
        (beat("running", 9000, COMMITTED, attempt=2), 6),
        (beat("starting", 5, Work()), 6),
        (beat("running", 60, Work()), 6),
        (beat("running", 60, COMMITTED), 1),
        (beat("running", 2, RECOVERED), 1),
        (beat("retrying", 60, COMMITTED), 1),
        (beat("running", 601, Work()), 1),
        # A start, or a batch, that ended after so long all the same.
        (beat("starting", 601, Work()), 6),
        (beat("running", 601, Work(busy_since=1000.0)), 6),
        (beat("running", 601, Work(lag={"t": {"0": 7}}, lag_at=1500.0)), 6),
        (beat("failed", 60, COMMITTED), 1),
        (beat("failed", 60, Work()), 6),
        (beat("failed", 601, Work()), 1),
        (beat("fenced", 60, COMMITTED), 6),
        (beat("fenced", 60, RECOVERED), 6),
        (beat("fenced", 601, COMMITTED), 1),
        (beat("stopped", 60, Work()), 0),
        (beat("terminated", 60, COMMITTED), 0),
        (beat("finished", 60, Work()), 0),
    ],
)
def test_a_committed_batch_starts_the_count_anew(newest: Heartbeat | None, failures: int) -> None:
    assert failures_in_a_row(LAUNCH, newest, STABLE) == failures


def test_a_stream_that_was_never_launched_has_not_failed() -> None:
    assert failures_in_a_row(None, None, STABLE) == 0


def test_kills_after_a_minute_of_commits_are_no_crash_loop() -> None:
    """Three in a row came back after 38, 59 and 102 s once, since the driver had not run for ten minutes."""
    launch, counted = Launch(1, "g", "f", 0, 0.0), []
    for attempt in range(1, 6):
        failures = failures_in_a_row(launch, beat("running", 60, COMMITTED, attempt), STABLE)
        counted.append(failures)
        launch = Launch(attempt + 1, "g", "f", failures, 0.0)
    assert counted == [1, 1, 1, 1, 1]


@pytest.mark.parametrize("ahead", [3_600, 86_400 * 365])
def test_a_launch_that_was_noted_under_a_clock_ahead_is_given_no_longer_than_others(tmp_path: Path, ahead: int) -> None:
    clock = [1_000.0]
    store = LocalStore(tmp_path, clock=lambda: clock[0])
    write_launch(store, Launch(1, "g", "streams/payments.yaml", 0, time.time() + ahead), "stream: payments\n")
    assert read_actual(store, "payments").starting
    clock[0] += UNSTARTED_SECONDS + 1
    actual = read_actual(store, "payments")
    assert (actual.starting, actual.launched_for) == (False, UNSTARTED_SECONDS + 1)
