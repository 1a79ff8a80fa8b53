"""The memory of the alert sensor: what begins, lasts and ends, who hears of it how often, and what survives."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.config.services.monitoring import AlertTarget
from orchestration.alerts.alarms import ALARM_BY_ID
from orchestration.alerts.conditions import Condition, Conditions
from orchestration.alerts.memory import (
    CLEAR_SECONDS,
    FIRST_PAUSE_SECONDS,
    GIVE_UP_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_ALERTS,
    RUN_SECONDS,
    AlertMemory,
)

T = 1_800_000_000
HALTED = "stream_halted"


def condition(alarm: str = HALTED, stream: str = "payments", subject: str = "", **changes: Any) -> Condition:
    entry = ALARM_BY_ID[alarm]
    made = Condition(entry, stream, subject, entry.severity, T - 5, "It ended.", f"frazil status {stream}", "/assets/x")
    return replace(made, **changes)


def now_is(*conditions: Condition, **changes: Any) -> Conditions:
    made = Conditions(**changes)
    made.add(conditions)
    return made


def target(**changes: Any) -> AlertTarget:
    return AlertTarget.model_validate({"webhook": {"url": "http://127.0.0.1/hook"}, **changes})


ALL = target(severity="info")


def told(memory: AlertMemory, name: str = "a", to: AlertTarget = ALL) -> list[tuple[str, bool]]:
    """What a target has to hear of now; it takes it."""
    due = list(memory.due_for(name, to))
    memory.delivered(name, due)
    return [(alert.key, is_end) for alert, is_end in due]


def test_a_condition_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    memory, key = AlertMemory(), condition().key
    memory.update(now_is(condition()), (), T)
    assert told(memory) == [(key, False)]
    for second in (15, 30):
        memory.update(now_is(condition()), (), T + second)
        assert told(memory) == []
    for second in (45, 60):
        memory.update(now_is(), (), T + second)
        assert told(memory) == [], "it may come back"
    memory.update(now_is(), (), T + 45 + CLEAR_SECONDS)
    assert told(memory) == [(key, True)]
    assert memory.alerts[0].ended == T + 45, "when it was first not seen"
    memory.forget(["a"], [ALL], T + 200)
    assert memory.alerts == []
    memory.update(now_is(condition()), (), T + 300)
    assert told(memory) == [(key, False)], "it is another one"


def test_what_comes_back_within_a_minute_has_not_ended() -> None:
    memory = AlertMemory()
    memory.update(now_is(condition()), (), T)
    first = memory.alerts[0].dedupe_key
    memory.update(now_is(), (), T + 15)
    memory.update(now_is(condition(since=T + 30)), (), T + 30)
    memory.update(now_is(), (), T + 80)
    memory.update(now_is(), (), T + 81)
    assert [(alert.dedupe_key, alert.ended) for alert in memory.alerts] == [(first, 0)]


def test_a_condition_that_does_not_last_is_told_nobody() -> None:
    waits, memory = ALARM_BY_ID["service_unavailable"].seconds, AlertMemory()
    memory.update(now_is(condition("service_unavailable")), (), T)
    memory.update(now_is(condition("service_unavailable")), (), T + waits - 1)
    assert told(memory) == []
    memory.update(now_is(), (), T + waits)
    assert memory.alerts == []
    memory.update(now_is(condition("service_unavailable")), (), T + waits + 15)
    memory.update(now_is(condition("service_unavailable")), (), T + 2 * waits + 15)
    assert told(memory) == [("service_unavailable/payments/", False)]


def test_what_explains_a_condition_hides_it() -> None:
    memory, lag = AlertMemory(), condition("lag_above_slo", subject="lake/orders:lag_within_slo")
    other = replace(lag, stream="refunds")
    memory.update(now_is(condition(), lag, other), (), T)
    assert {alert.key for alert in memory.alerts} == {condition().key, other.key}
    memory = AlertMemory()
    memory.update(now_is(lag), (), T)
    memory.update(now_is(condition(), lag), (), T + 60)
    assert {alert.key for alert in memory.alerts} == {condition().key, lag.key}, "what was told before goes on"


def test_what_nobody_can_look_at_stays_as_it_was() -> None:
    failing = condition("rows_quarantined", subject="lake/orders:published")
    memory = AlertMemory()
    memory.update(now_is(condition(), failing), (), T)
    for second in (60, 120, 180):
        unknown = now_is(unknown={failing.key}, unknown_streams={"payments"})
        memory.update(unknown, (), T + second)
    assert [alert.gone for alert in memory.alerts] == [0, 0]
    memory.update(now_is(unknown={failing.key}), (), T + 200)
    assert [bool(alert.gone) for alert in memory.alerts] == [True, False]


def test_a_failed_run_ends_with_a_later_one_or_after_a_day() -> None:
    run = condition("run_failed", subject="frazil_audit", since=T)
    memory = AlertMemory()
    memory.update(now_is(run), (), T)
    memory.update(now_is(), (), T + 300)
    assert memory.lasting.keys() == {run.key}, "a tick sees the runs since the last one only"
    memory.update(now_is(), {run.key}, T + 400)
    assert memory.alerts[0].ended == T + 400
    memory = AlertMemory()
    memory.update(now_is(run), (), T)
    memory.update(now_is(), (), T + RUN_SECONDS + 1)
    assert memory.lasting == {}


def test_a_target_hears_what_it_asks_for_and_the_end_of_what_it_heard() -> None:
    urgent, payments = target(severity="critical"), target(streams=["pay*"])
    memory = AlertMemory()
    memory.update(now_is(condition(), condition("run_failed", "refunds")), (), T)
    assert told(memory, "urgent", urgent) == [(condition().key, False)]
    assert told(memory, "payments", payments) == [(condition().key, False)]
    memory.update(now_is(condition(severity="warning")), (), T + 15)
    for second in (30, 30 + CLEAR_SECONDS):
        memory.update(now_is(), (), T + second)
    assert told(memory, "urgent", urgent) == [(condition().key, True)], "though it is a warning by now"


def test_who_could_not_be_told_hears_of_beginning_and_end() -> None:
    memory = AlertMemory()
    memory.update(now_is(condition()), (), T)
    for second in (30, 30 + CLEAR_SECONDS):
        memory.update(now_is(), (), T + second)
        memory.forget(["a"], [ALL], T + second)
    assert told(memory) == [(condition().key, False), (condition().key, True)]
    memory.forget(["a"], [ALL], T + 200)
    assert memory.alerts == []


def test_an_end_that_nobody_takes_is_given_up() -> None:
    memory = AlertMemory()
    memory.update(now_is(condition()), (), T)
    for second in (30, 30 + CLEAR_SECONDS):
        memory.update(now_is(), (), T + second)
    memory.forget(["a"], [ALL], T + GIVE_UP_SECONDS)
    assert len(memory.alerts) == 1
    memory.forget(["a"], [ALL], T + 30 + GIVE_UP_SECONDS)
    assert memory.alerts == []


def test_failed_deliveries_are_tried_again_after_growing_pauses() -> None:
    memory, now, pauses = AlertMemory(), T, []
    for _ in range(9):
        memory.refused("a", "HTTP status 500", now)
        receiver = memory.receivers["a"]
        assert memory.waits("a", receiver.again - 1)
        assert not memory.waits("a", receiver.again)
        pauses.append(receiver.again - now)
        now = receiver.again
    assert pauses == [FIRST_PAUSE_SECONDS * 2**n for n in range(6)] + [LONGEST_PAUSE_SECONDS] * 3
    assert memory.receivers["a"].failures == 9
    assert not memory.waits("a", T - 10_000), "the clock was set back"
    memory.delivered("a", [])
    assert memory.receivers == {}


def test_there_is_room_for_so_many_and_the_urgent_come_first() -> None:
    memory = AlertMemory()
    many = [condition("run_failed", f"s{number}") for number in range(MOST_ALERTS)]
    memory.update(now_is(*many, condition()), (), T)
    assert len(memory.alerts) == MOST_ALERTS
    assert condition().key in memory.lasting
    assert memory.left_out == 1
    assert len(memory.to_cursor()) < 200_000


def test_what_matters_less_makes_room_for_a_halted_stream() -> None:
    many = [condition("undeclared_fields", f"s{number}") for number in range(MOST_ALERTS)]
    memory = AlertMemory()
    memory.update(now_is(*many), (), T)
    memory.update(now_is(*many), (), T + 60)
    memory.delivered("a", list(memory.due_for("a", ALL))[1:])
    for second in (75, 90):
        memory.update(now_is(*many, condition()), (), T + second)
        assert condition().key in memory.lasting
        assert (len(memory.alerts), memory.left_out) == (MOST_ALERTS, 1)
    assert told(memory) == [(condition().key, False)], "the one that nobody had heard of is left out"


def test_ends_that_a_dead_target_does_not_take_make_room_the_oldest_first() -> None:
    many = [condition(stream=f"s{number}") for number in range(MOST_ALERTS)]
    memory = AlertMemory()
    memory.update(now_is(*many), (), T)
    memory.delivered("a", list(memory.due_for("a", ALL)))
    for second in (15, 15 + CLEAR_SECONDS):
        memory.update(now_is(*many[1:]), (), T + second)
    for second in (150, 150 + CLEAR_SECONDS):
        memory.update(now_is(), (), T + second)
    assert memory.lasting == {}
    memory.update(now_is(condition("service_unavailable")), (), T + 300)
    assert memory.lasting.keys() == {condition("service_unavailable").key}
    assert (len(memory.alerts), memory.left_out) == (MOST_ALERTS, 0)
    assert "s0" not in {alert.stream for alert in memory.alerts}


@pytest.mark.parametrize(("since", "begins"), [(-1e18, 0), (1e18, T), (T - 5.5, T - 6)])
def test_a_time_of_no_calendar_is_one_that_can_be_shown(since: float, begins: int) -> None:
    memory = AlertMemory()
    memory.update(now_is(condition(since=since)), (), T)
    assert memory.alerts[0].since == begins


def test_the_same_message_has_the_same_key_after_a_crash() -> None:
    memory = AlertMemory()
    memory.update(now_is(condition()), (), T)
    kept = memory.to_cursor()
    keys = []
    for moment in (T + 15, T + 30):
        # The daemon ended after the delivery and before the cursor was kept.
        again = AlertMemory.from_cursor(kept)
        keys += [alert.dedupe_key for alert, _ in again.due_for("a", ALL)]
        again.delivered("a", list(again.due_for("a", ALL)))
        again.update(now_is(condition(since=moment)), (), moment)
    assert len(keys) == 2
    assert len(set(keys)) == 1


@pytest.mark.parametrize("cursor", [None, "", "{", '{"alerts": 3}', "[]"])
def test_a_cursor_that_cannot_be_read_is_empty(cursor: str | None) -> None:
    assert AlertMemory.from_cursor(cursor) == AlertMemory()


def test_an_alarm_of_another_release_is_left_out() -> None:
    memory = AlertMemory()
    memory.update(now_is(condition(), condition(stream="refunds")), (), T)
    kept = memory.to_cursor().replace(HALTED, "of_another_release", 1)
    assert [alert.stream for alert in AlertMemory.from_cursor(kept).alerts] == ["refunds"]


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.integers(1, 100)), max_size=40))
def test_beginnings_and_ends_alternate_whatever_happens(steps: list[tuple[bool, bool, int]]) -> None:
    """A target that is up hears of a beginning, then of its end, then of the next beginning, and each once."""
    memory, now, heard = AlertMemory(), T, []
    for lasts, is_up, seconds in steps:
        now += seconds
        if is_up:
            heard += [is_end for _, is_end in told(memory)]
        memory.update(now_is(*([condition()] if lasts else [])), (), now)
        memory.forget(["a"], [ALL], now)
        memory = AlertMemory.from_cursor(memory.to_cursor())
    assert heard == [bool(number % 2) for number in range(len(heard))]
