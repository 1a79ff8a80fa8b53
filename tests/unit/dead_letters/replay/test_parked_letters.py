"""Replays of a stream one of whose tables is parked: they write nothing to it, and cost its letters nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.dead_letters.connect_queue.importer import import_queue
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.session import ReplaySession
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.stamp.errors import CommitDeniedError
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.unit.dead_letters.replay.test_routed_replay import (
    DEAD,
    PLACED,
    SINK,
    Killed,
    Letters,
)

CHANGES, DELETES, ELSEWHERE = "orders.changes", "orders.deletes", "orders.elsewhere"
PARK: dict[str, Any] = {**ROUTE, "on_table_error": "park"}


def parked(one: Letters) -> None:
    """A driver opens the stream while the table of deletes is away."""
    one.stream.catalog.rename_table(DELETES, ELSEWHERE)
    reopened(one, 20)


def reopened(one: Letters, epoch: int, route: dict[str, Any] = PARK) -> None:
    after = RoutedStream(one.stream.home, route, epoch=epoch, decode=one.stream.spec.decode.model_dump(mode="json"))
    after.log = list(one.stream.log)
    one.stream = after


def unparked(one: Letters) -> None:
    stream = one.stream
    stream.catalog.rename_table(ELSEWHERE, DELETES)
    record_answer(stream.spec, stream.settings, lambda: pytest.fail("no broker"), Answer(unpark=DELETES), "ada: back")


def attempts(one: Letters) -> dict[int, int | None]:
    rows = one.stream.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
    return {each["offset"]: each["attempts"] for each in rows}


def test_letters_of_records_that_need_a_parked_table_are_left_as_they_are(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", PARK)
    parked(one)
    for _ in range(4):
        done = one.replay()
        assert {each.error_class for each in done.reasons} >= {"table_parked"}
    waiting = [1, 2, 6, 7]
    assert [one.states[at] for at in waiting] == ["new"] * 4 and [attempts(one)[at] for at in waiting] == [None] * 4
    assert one.placed == {SINK: [3, 8], CHANGES: [0, 5]}
    unparked(one)
    assert one.replay().replayed == 4
    assert one.placed == PLACED


def test_letters_of_a_table_that_the_file_names_no_more_are_left_as_they_are(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, PARK)
    one.land({"id": "a", "type": "DEL", "n": 1})
    one.catalog.rename_table(DELETES, ELSEWHERE)
    after = RoutedStream(home, PARK, epoch=20)
    after.log = list(one.log)
    after.land({"id": "b", "type": "DEL", "n": 1}, batch=0)
    assert after.letters_for(DELETES) == [0, 1]
    rest = [each for each in ROUTE["tables"] if each["table"] != DELETES]
    without = RoutedStream(home, {**PARK, "tables": rest}, epoch=30)
    without.log = list(after.log)
    without.land({"id": "c", "type": "INS", "n": 1}, batch=0)
    letters = Letters.__new__(Letters)
    letters.stream, letters.file = without, home / "streams" / "payments.yaml"
    for _ in range(4):
        done = letters.replay(None)
        assert (done.selected, done.replayed) == (2, 0)
        assert [each.error_class for each in done.reasons] == ["table_parked"]
    assert letters.states == {0: "new", 1: "new"}


def test_a_replay_that_was_cut_short_before_a_table_that_is_parked_then_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Letters(tmp_path / "home", PARK)
    done = ReplaySession.commit

    def killed(self: ReplaySession, target: Any, *more: Any) -> Any:
        if target.name == DELETES:
            raise Killed
        return done(self, target, *more)

    with monkeypatch.context() as patched:
        patched.setattr(ReplaySession, "commit", killed)
        with pytest.raises(Killed):
            one.replay()
    parked(one)
    # It is there again, and refuses what is asked of it; only an operator unparks it.
    one.stream.catalog.rename_table(ELSEWHERE, DELETES)
    real = ReplaySession.claimed

    def claimed(self: ReplaySession, name: str) -> Any:
        if name == DELETES:
            raise CommitDeniedError(f"the catalog refuses what is asked of {name}")
        return real(self, name)

    with monkeypatch.context() as patched:
        patched.setattr(ReplaySession, "claimed", claimed)
        one.replay()
    assert one.placed == {SINK: [3, 8], CHANGES: [0, 1, 5, 6]}
    one.no_record_is_left()
    one.stream.catalog.rename_table(DELETES, ELSEWHERE)
    unparked(one)
    one.replay()
    assert one.placed == PLACED
    one.no_record_is_left()


def test_no_queue_is_taken_while_a_table_is_parked(tmp_path: Path) -> None:
    one = Letters(tmp_path / "home", PARK)
    parked(one)
    stream = one.stream
    before = {name: one.snapshots(name) for name in (SINK, CHANGES, DEAD, ELSEWHERE)}
    with pytest.raises(FrazilError, match=f"table {DELETES} is suspended, and a record of a queue") as refused:
        import_queue(stream.spec, stream.settings, stream.catalog, "connect.dlq", ReplayRequest())
    assert f"--unpark {DELETES}" in str(refused.value.fix)
    assert before == {name: one.snapshots(name) for name in before} and not stream.catalog.table_exists(DELETES)
