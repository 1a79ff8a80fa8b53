"""What the supervisor reports of dead letters: counts that plot, and how many wait, whoever changed them."""

from __future__ import annotations

import os
import threading
from typing import Any

import dagster as dg
import pytest

from jobs.base.system.boot import boot_clock
from jobs.clients.catalog.catalog import quick_catalog
from jobs.clients.kafka.metadata import quick_kafka
from jobs.dead_letters.expiry.dead_letter_states import StateChange, change_dead_letters
from jobs.tables.dead_letter_table.selection import Selection
from orchestration.reconcile import table_reports
from orchestration.reconcile.background_query import BackgroundQuery
from orchestration.reconcile.cursor import SensorCursor
from orchestration.sensors.reconcile import ReconcileTick, run_reconcile_tick
from tests.helpers.dead_letters import BROKEN, GOOD, DeadLetterWorld
from tests.unit.orchestration.dead_letter_deployment import DEAD, deployment_of
from tests.unit.orchestration.reconcile.sample_states import NOW, stand_in
from tests.unit.orchestration.reconcile.supervised_deployment import events, told, values, work

# Without a freshness policy.
EVERY = 300


class Supervised:
    """A supervisor over a stream with letters."""

    def __init__(self, dead_letters: DeadLetterWorld) -> None:
        self.world: DeadLetterWorld = dead_letters
        self.memory: SensorCursor = SensorCursor.from_cursor(None)
        self.memory.away_until = 2**40

    def drive(self, at: float) -> None:
        """A driver beats that has written all letters there are."""
        head = self.world.dead().metadata.current_snapshot_id
        folder = self.world.settings.state / "streams" / "payments"
        folder.mkdir(parents=True, exist_ok=True)
        stand_in(
            folder, "payments", "g", pid=os.getpid(), now=at, work=work(dead_letter_snapshot_id=head, snapshot_id=1)
        )

    def tick(self, at: float) -> list[dict[str, Any]]:
        """The reports of the dead letters of one tick."""
        self.last: ReconcileTick = run_reconcile_tick(
            deployment_of(self.world),
            lambda: quick_catalog(self.world.settings),
            lambda: quick_kafka(self.world.settings.kafka),
            self.memory,
            {},
            lambda streams: {},
            at,
            boot_clock(),
        )
        assert self.last.problems == {}
        return [values(event) for event in told(self.last, DEAD)]

    @property
    def check(self) -> list[bool]:
        found = events(self.last, dg.AssetCheckEvaluation)
        return [event.passed for event in found if event.check_name == "letters_waiting"]


@pytest.fixture
def supervised(dead_letters: DeadLetterWorld) -> Supervised:
    return Supervised(dead_letters)


def numbers(told: dict[str, Any]) -> dict[str, int]:
    return {name.removeprefix("dead_letters_"): n for name, n in told.items() if name.startswith("dead_letters_") and n}


def test_new_letters_are_counted_when_the_snapshot_is_new(supervised: Supervised) -> None:
    dead_letters = supervised.world
    dead_letters.add([GOOD] * 3 + [BROKEN])
    supervised.drive(NOW)
    (first,) = supervised.tick(NOW)
    assert numbers(first) == {"new": 4, "total": 4, "waiting": 4}
    assert first["letters"].splitlines()[2] == "| was_good | 3 | 3 |"
    assert (first["dagster/row_count"], first["records_added"]) == (4, 4) if "records_added" in first else (4, 4)
    assert first["snapshot_id"] == str(dead_letters.dead().metadata.current_snapshot_id)
    assert supervised.check == [True]
    assert supervised.tick(NOW + EVERY) == [], "nothing is read while nothing changes"
    assert supervised.check == []
    dead_letters.add([BROKEN] * 2)
    supervised.drive(NOW + EVERY + 10)
    (second,) = supervised.tick(NOW + EVERY + 10)
    assert numbers(second) == {"new": 6, "total": 6, "waiting": 6}
    assert second["records_added"] == 2
    assert second["letters_as_of"] == NOW + EVERY + 10
    (waiting,) = [event for event in events(supervised.last, dg.AssetCheckEvaluation) if event.asset_key == DEAD]
    assert (values(waiting)["dead_letters_waiting"], values(waiting)["as_of"]) == (6, NOW + EVERY + 10)


def test_a_replay_at_the_command_line_is_noticed(supervised: Supervised) -> None:
    dead_letters = supervised.world
    dead_letters.add([GOOD] * 3 + [BROKEN])
    supervised.drive(NOW)
    supervised.tick(NOW)
    dead_letters.replay()
    assert supervised.tick(NOW + 10) == [], "as rarely as anything else"
    (second,) = supervised.tick(NOW + EVERY)
    assert numbers(second) == {"replayed": 3, "failed_again": 1, "total": 4, "waiting": 1}
    assert second["snapshot_id"] == str(dead_letters.dead().metadata.current_snapshot_id)
    # The driver has the replay's snapshot beneath its own next one: what was written anew is not added.
    dead_letters.add([BROKEN])
    supervised.drive(NOW + 2 * EVERY)
    (third,) = supervised.tick(NOW + 2 * EVERY)
    assert third["records_added"] == 1
    dead_letters.replay()
    (fourth,) = supervised.tick(NOW + 3 * EVERY)
    assert numbers(fourth)["parked"] == 1
    assert supervised.check == [False]
    change_dead_letters(
        *dead_letters.given,
        Selection(states=("parked",)),
        StateChange("dismissed", "jo", "test"),
    )
    (fifth,) = supervised.tick(NOW + 4 * EVERY)
    assert numbers(fifth)["dismissed"] == 1
    assert supervised.check == [True]


def test_letters_of_a_stream_without_a_driver_are_told_after_a_replay(supervised: Supervised) -> None:
    supervised.world.add([GOOD] * 2)
    assert supervised.tick(NOW) == []
    supervised.world.replay()
    (told,) = supervised.tick(NOW + EVERY)
    assert numbers(told) == {"replayed": 2, "total": 2}
    assert supervised.tick(NOW + 2 * EVERY) == []


def test_a_count_that_takes_long_is_told_by_a_later_report(
    supervised: Supervised, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = threading.Event()
    counts = table_reports.tally_dead_letters
    monkeypatch.setattr(table_reports, "tally_dead_letters", lambda *given: go.wait(60) and counts(*given))
    monkeypatch.setattr("orchestration.reconcile.table_reports.COUNT_SECONDS", 0.05)
    supervised.world.add([GOOD] * 2)
    supervised.drive(NOW)
    (first,) = supervised.tick(NOW)
    assert numbers(first) == {}
    assert first["dagster/row_count"] == 2
    go.set()
    (thread,) = [each for each in threading.enumerate() if each.name == "frazil letters"]
    thread.join(300)
    (second,) = supervised.tick(NOW + EVERY)
    assert numbers(second) == {"new": 2, "total": 2, "waiting": 2}
    assert supervised.check == [True]
    assert supervised.tick(NOW + 2 * EVERY) == []


def test_an_answer_in_time_is_given_and_given_once() -> None:
    asked: list[int] = []
    background = BackgroundQuery()
    for _ in range(2):
        assert background.ask("a", 30, lambda: asked.append(1) or "b") == "b"
    assert len(asked) == 2


def test_an_answer_that_is_late_is_picked_up_and_the_question_asked_once() -> None:
    background, go, asked = BackgroundQuery(), threading.Event(), []

    def slow() -> str:
        asked.append(1)
        go.wait(60)
        return "late"

    assert background.ask("slow", 0.02, slow) is None
    assert background.ask("slow", 0.02, slow) is None
    assert background.ask("other", 0.02, lambda: "other") is None, "one question at a time"
    go.set()
    assert background.ask("slow", 60, slow) == "late"
    assert len(asked) == 1
    assert background.ask("other", 60, lambda: "other") == "other"


def test_what_a_question_raises_is_raised_where_it_was_asked() -> None:
    def bad() -> str:
        raise ValueError("bad")

    background = BackgroundQuery()
    with pytest.raises(ValueError, match="bad"):
        background.ask("bad", 60, bad)
    assert background.ask("good", 60, lambda: 1) == 1
