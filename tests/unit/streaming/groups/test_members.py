"""Which streams of a group its driver takes up, launches anew, starts alone, or leaves out."""

from __future__ import annotations

import itertools
from typing import get_args

import msgspec
import pytest

from jobs.streaming.groups.members import (
    ALONE_SECONDS,
    MOST_DEATHS,
    PROVEN_SECONDS,
    Member,
    in_order,
    proven,
)
from jobs.streaming.supervision.documents.control_request import ControlRequest
from jobs.streaming.supervision.documents.heartbeat import (
    FINAL,
    Heartbeat,
    State,
    Work,
)
from jobs.streaming.supervision.documents.launches import Launch

NOW = 1_000_000.0
LAUNCH = Launch(4, "a", "s.yaml", 0, NOW - 100, group="small")


def beat(state: State, attempt: int = 4, work: Work | None = None, since: float = NOW - 100) -> Heartbeat:
    who = ("s", "a", attempt, 1, "1", "boot", "host")
    return Heartbeat(*who, since, state, since, 1.0, NOW, group="small", work=work or Work())


def member(last: Heartbeat | None, stream: str = "s", **changes: object) -> Member:
    return Member(stream, LAUNCH, ControlRequest(), last, **changes)  # type: ignore[arg-type]


STATES: tuple[State, ...] = get_args(State)
ENDED: tuple[State, ...] = tuple(state for state in STATES if state in FINAL)


def test_a_launch_that_nobody_has_begun_is_taken_up_as_it_is() -> None:
    assert member(None).take_up(0) == "launched"
    for state in STATES:
        assert member(beat(state, attempt=3)).take_up(0) == "launched"
        # Its driver before this one is not gone yet.
        assert member(beat(state, attempt=3), driven=True).take_up(0) == "no"


@pytest.mark.parametrize("state", STATES)
def test_one_that_a_driver_left_without_a_word_is_launched_anew(state: State) -> None:
    ended = state in FINAL and state != "terminated"
    assert member(beat(state)).take_up(0) == ("no" if ended else "anew")
    # Somebody else drives it, or lands its records.
    assert member(beat(state), driven=True).take_up(0) == "no"


@pytest.mark.parametrize("last", [None, *(beat(state, attempt) for state in STATES for attempt in (3, 4, 5))])
def test_what_is_not_wanted_or_was_had_is_left(last: Heartbeat | None) -> None:
    made = member(last)
    for control in (ControlRequest("stopped"), ControlRequest(end_attempt=4), ControlRequest("paused", 7)):
        assert Member("s", LAUNCH, control, last).take_up(0) == "no"
    for carried in (4, 5):
        assert made.take_up(carried) == "no"
    # An attempt before this one was had: this is another launch.
    assert made.take_up(3) == made.take_up(0)
    # Its keeper, or an action, has gone further.
    if last is not None and last.attempt > 4:
        assert made.take_up(0) == "no"


def test_of_a_launch_that_nobody_begins_its_end_is_said() -> None:
    asked = ControlRequest(end_attempt=4)
    assert Member("s", LAUNCH, asked, beat("running", attempt=3)).unbegun
    assert Member("s", LAUNCH, asked, None).unwanted
    assert Member("s", LAUNCH, ControlRequest("stopped"), None).unwanted
    assert not member(None).unwanted
    assert not member(beat("starting")).unbegun


def test_a_paused_stream_is_taken_up_and_reads_nothing() -> None:
    assert Member("s", LAUNCH, ControlRequest("paused"), beat("paused")).take_up(0) == "anew"


def test_a_driver_may_have_died_of_what_was_at_work() -> None:
    busy = Work(busy_since=NOW - 5)
    assert member(beat("running", work=busy)).suspect
    assert member(beat("starting")).suspect
    assert not member(None).suspect
    assert not member(beat("running")).suspect
    assert not member(beat("running", attempt=3, work=busy)).suspect
    for state in ENDED:
        assert not member(beat(state, work=busy)).suspect


def test_a_stream_is_left_out_after_deaths_in_a_row_whatever_else_failed() -> None:
    busy = Work(busy_since=NOW - 5)
    for deaths in range(4):
        launch = msgspec.structs.replace(LAUNCH, deaths=deaths, failures=6)
        suspect = Member("s", launch, ControlRequest(), beat("running", work=busy))
        assert suspect.deaths == deaths + 1
        assert suspect.left_out == (deaths + 1 >= MOST_DEATHS)
        # It has landed something since it was launched: the count begins anew.
        landed = Work(batches=1, busy_since=NOW - 5)
        assert Member("s", launch, ControlRequest(), beat("running", work=landed)).deaths == 1
        assert Member("s", launch, ControlRequest(), beat("running")).deaths == 0
        assert Member("s", launch, ControlRequest(), beat("failed", work=busy)).deaths == 0
        # Launched by the supervisor after those deaths, and not begun.
        again = Member("s", launch, ControlRequest(), beat("running", attempt=3, work=busy))
        assert (again.deaths, again.suspect) == (deaths, deaths > 0)


def test_suspects_begin_one_by_one_and_before_all_others() -> None:
    busy = beat("running", work=Work(busy_since=NOW))
    made = [member(busy, "c"), member(None, "b"), member(beat("running"), "a"), member(beat("starting"), "d")]
    for shuffled in itertools.permutations(made):
        first, others = in_order(shuffled)
        assert [each.stream for each in first] == ["c", "d"]
        assert [each.stream for each in others] == ["a", "b"]


def test_a_stream_has_proven_itself_once_it_landed_ended_or_stayed_idle() -> None:
    began = NOW - 2
    busy = Work(busy_since=NOW - 1)
    assert not proven(beat("starting", since=began), NOW, began)
    assert not proven(beat("running", work=busy, since=began), NOW, began)
    assert not proven(beat("running", since=began), NOW, began)
    assert proven(beat("running", since=began), began + PROVEN_SECONDS + 1, began)
    assert proven(beat("running", work=Work(batches=1, busy_since=NOW), since=began), NOW, began)
    assert proven(beat("running", work=Work(recovered=1), since=began), NOW, began)
    assert proven(beat("paused", since=began), NOW, began)
    assert proven(beat("retrying", since=began), NOW, began)
    for state in ENDED:
        assert proven(beat(state, since=began), NOW, began)
    # Others do not wait for ever.
    assert not proven(beat("running", work=busy, since=began), began + ALONE_SECONDS - 1, began)
    assert proven(beat("running", work=busy, since=began), began + ALONE_SECONDS + 1, began)
