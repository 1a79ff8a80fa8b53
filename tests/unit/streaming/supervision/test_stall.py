"""When a driver that beats counts as stalled, and when it only takes long, waits, is paused, or has nothing to do."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.documents.validation import SpecError
from jobs.config.stream.models import StreamSpec
from jobs.streaming.supervision.documents.heartbeat import Heartbeat, State, Work
from jobs.streaming.supervision.documents.stall import find_stall, stalled_after
from tests.unit.config.test_generation import spec_with

NOW = 1_800_000_000.0
AFTER = 600.0
WAITING: dict[str, Any] = {"lag": {"t": {"0": 7}}, "lag_at": NOW, "waiting_since": NOW - 4000}
LATELY: dict[str, Any] = WAITING | {"waiting_since": NOW - 599}
LONGER: dict[str, Any] = WAITING | {"waiting_since": NOW - 601}
FORMERLY: dict[str, Any] = WAITING | {"waiting_since": None}


def beat(state: State = "running", since: float = 5000.0, **work: Any) -> Heartbeat:
    return Heartbeat(
        *("payments", "g", 3, 7, "1", "boot", "here"),
        since=NOW - 5000,
        state=state,
        state_since=NOW - since,
        beat=0.0,
        beat_wall=NOW,
        work=Work(**work),
    )


@pytest.mark.parametrize(
    ("newest", "what", "sure"),
    [
        (beat(unanswered_since=NOW - 21), "its JVM has not answered for 21 s", True),
        (beat(unanswered_since=NOW - 21, busy_since=NOW - 30, got_on_at=NOW - 5), "its JVM has not answered", True),
        (beat("retrying", unanswered_since=NOW - 21), "its JVM has not answered for 21 s", True),
        (beat(busy_since=NOW - 700, got_on_at=NOW - 650), "nothing of it has got on for 650 s", True),
        (beat(busy_since=NOW - 700, got_on_at=NOW - 2000), "at one batch for 700 s, and nothing", True),
        (beat(busy_since=NOW - 700), "it has been at one batch for 700 s", False),
        (beat(last_commit_at=NOW - 700, **WAITING), "begun no batch for 700 s though 7 records wait", True),
        (beat(since=601, **WAITING), "begun no batch for 601 s", True),
        (beat(last_commit_at=NOW - 9000, **LONGER), "begun no batch for 601 s", True),
        # What a driver of an earlier version says does not tell since when records wait.
        (beat(since=601, **FORMERLY), "begun no batch for 601 s", False),
        (beat("starting", since=601), "it has been starting for 601 s", True),
    ],
)
def test_what_has_stalled(newest: Heartbeat, what: str, sure: bool) -> None:
    stall = find_stall(newest, AFTER)
    assert stall is not None
    assert (what in stall.what, stall.sure) == (True, sure), stall
    assert stall.since == NOW - stall.seconds
    assert stall.sentence.startswith("has stalled since 2027-01-15T0")


@pytest.mark.parametrize(
    "newest",
    [
        beat(),
        beat(busy_since=NOW - 599),
        # A batch of hours whose tasks work.
        beat(busy_since=NOW - 9000, got_on_at=NOW - 10),
        beat(last_commit_at=NOW - 9000, lag={"t": {"0": 0}}, lag_at=NOW),
        beat(last_commit_at=NOW - 9000),
        beat(last_commit_at=NOW - 599, **WAITING),
        beat(since=599, **WAITING),
        # The first records after a quiet night.
        beat(last_commit_at=NOW - 9000, **LATELY),
        beat("starting", since=599),
        *(beat(state, busy_since=NOW - 9000, **WAITING) for state in ("paused", "retrying", "stopping", "failed")),
        beat("paused", unanswered_since=NOW - 900),
    ],
)
def test_what_has_not(newest: Heartbeat) -> None:
    assert find_stall(newest, AFTER) is None


def with_restart(**restart: str) -> StreamSpec:
    return spec_with(lambda data: data.update(restart=restart))


def test_it_is_counted_beyond_what_a_driver_waits_on_purpose() -> None:
    assert stalled_after(spec_with()) == 660
    assert stalled_after(with_restart(stalled_after="2m")) == 180
    assert stalled_after(with_restart(stalled_after="none")) == 660
    assert stalled_after(spec_with(lambda data: data.update(trigger="as_fast_as_possible"))) == 600
    waits = {"topics": ["payments"], "min_records_per_batch": 5, "max_delay": "1h"}
    assert stalled_after(spec_with(lambda data: data.update(source=waits))) == 4200


@pytest.mark.parametrize("value", ["59s", "30", 30, "never", "", "1x"])
def test_a_value_that_cannot_be_meant_is_refused(value: Any) -> None:
    with pytest.raises((SpecError, ValueError), match=r"must be|needs a unit|or none"):
        with_restart(stalled_after=value)


def test_none_is_written_out_as_it_is_read() -> None:
    assert with_restart(stalled_after="none").model_dump(mode="json")["restart"]["stalled_after"] == "none"
    assert with_restart().model_dump(mode="json")["restart"]["stalled_after"] == "10m"
