"""Parked tables of a routed stream, on real tables: letters hold their place, and everything comes home by a replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.streaming.driver.batch.retry import is_unavailable
from jobs.streaming.driver.tables.parked_tables import reopened_where_unable
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.stamp.errors import CommitDeniedError, NothingToAcceptError, TableUnableError
from jobs.tables.dead_letter_table.parked_letters import TABLE_PARKED
from tests.helpers.evolving_stream import SINK
from tests.helpers.parking import (
    CHANGES,
    DEAD,
    DELETES,
    PARK,
    again,
    audited,
    dropped,
    landed,
    records,
    replayed,
    rows_of,
    unpark,
)
from tests.helpers.routed_stream import RoutedStream


def test_a_table_that_is_gone_is_parked_and_the_others_go_on(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 2)
    newest = history(after.table.metadata, "payments").newest
    assert newest is not None and set(newest.parked) == {DELETES}
    (told,) = [each for _, each in stamps_along_main(after.table.metadata, "payments") if each.kind == "accept"]
    assert told.decision is not None and told.decision.answer == "parked"
    assert told.note == f"route.on_table_error: suspended by the driver, as {DELETES}: the table was dropped"
    done = after.land(*records(5), batch=0)
    assert (done.counts.read, done.counts.landed, done.counts.dead) == (5, 4, 1)
    assert not after.catalog.table_exists(DELETES), "none is made in its place"
    assert rows_of(after) == {SINK: [3, 8], CHANGES: [0, 1, 5, 6]}
    # Nobody can say whether it had the batch before it was dropped.
    assert after.letters_for(DELETES) == [1, 2, 6, 7]


def test_a_letter_names_its_table_and_holds_the_record(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 2)
    after.land(*records(5), batch=0)
    rows = after.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
    (letter,) = [each for each in rows if each["offset"] == 6]
    told = {name: letter[name] for name in ("stage", "error_class", "message", "target", "state", "batch_id", "epoch")}
    assert told == {
        "stage": "commit",
        "error_class": TABLE_PARKED,
        "message": f"table {DELETES} is suspended",
        "target": DELETES,
        "state": None,
        "batch_id": None,
        "epoch": None,
    }
    assert letter["value"] == after.log[6]


def test_it_comes_home_once_it_is_unparked_and_its_letters_are_replayed(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 2)
    after.land(*records(5), batch=0)
    audited(after, gone=DELETES)
    before = replayed(after)
    assert before.failed_again == 2 and before.replayed == 0, "letters of a parked table are not meant"
    unpark(after, DELETES)
    assert after.catalog.table_exists(DELETES), "it is rebuilt"
    third = again(after, 30)
    third.land(*records(10), batch=0)
    assert third.placed()[DELETES] == [11, 12]
    result = replayed(third)
    assert result.replayed == 4
    assert rows_of(third) == {name: at for name, at in landed(*range(15)).items() if name != DEAD}
    assert replayed(third).replayed == 0
    audited(third)


def test_a_table_that_is_put_back_keeps_what_it_has(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, PARK)
    one.land(*records(0))
    one.catalog.rename_table(DELETES, "orders.elsewhere")
    after = again(one, 20)
    after.land(*records(5), batch=0)
    after.catalog.rename_table("orders.elsewhere", DELETES)
    audited(after)
    unpark(after, DELETES)
    third = again(after, 30)
    result = replayed(third)
    assert (result.replayed, result.standing) == (2, 2), "two of them it had before it was renamed"
    assert rows_of(third) == {name: at for name, at in landed(*range(10)).items() if name != DEAD}
    audited(third)


def denied(stream: RoutedStream, table: str) -> None:
    """The catalog refuses each commit to a table."""

    def refuse(*_: Any, **__: Any) -> int:
        raise CommitDeniedError(f"the catalog refuses what is asked of {table}")

    stream.stream.targets[table]._commit_once = refuse  # type: ignore[assignment]


def test_a_table_that_refuses_its_commit_stops_no_other_and_is_parked_by_the_next_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    denied(one, CHANGES)
    with (
        pytest.raises(TableUnableError, match=f"{CHANGES} takes no commits") as told,
        reopened_where_unable(one.stream),
    ):
        one.land(*records(5), batch=1)
    assert is_unavailable(told.value), "a driver opens the stream again by itself"
    assert one.placed()[DELETES] == [1, 2, 6, 7] and one.placed()[CHANGES] == [0, 1]
    # The next driver is refused, too.
    real = one.stream.targets[CHANGES].__class__.claim

    def claim(target: Any, *given: Any, **more: Any) -> Any:
        if target.name == CHANGES:
            raise CommitDeniedError(f"the catalog refuses what is asked of {CHANGES}")
        return real(target, *given, **more)

    with monkeypatch.context() as patched:
        patched.setattr("jobs.tables.commit.protocol.target.Target.claim", claim)
        after = again(one, 20)
    after.land(batch=0)
    assert after.letters_for(CHANGES) == [5, 6], "of the batch that it lacks"
    after.land(*records(10), batch=1)
    assert after.letters_for(CHANGES) == [5, 6, 10, 11]
    audited(after)
    unpark(after, CHANGES)
    third = again(after, 30)
    third.land(*records(15), batch=0)
    assert replayed(third).replayed == 4
    assert rows_of(third) == {name: at for name, at in landed(*range(20)).items() if name != DEAD}
    audited(third)


def test_two_parked_tables_have_a_letter_each_of_one_record(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    for name in (CHANGES, DELETES):
        one.catalog.drop_table(name)
    after = again(one, 20)
    after.land(*records(5), batch=0)
    rows = after.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
    both = [each for each in rows if each["offset"] == 6]
    assert {each["target"] for each in both} == {CHANGES, DELETES}
    assert len({each["first_seen"] for each in both}) == 2, "it tells them apart"
    unpark(after, CHANGES)
    assert replayed(again(after, 30)).replayed == 4
    states = {
        (each["offset"], each["target"]): each["state"] or "new"
        for each in after.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
        if each["target"]
    }
    assert {state for (_, table), state in states.items() if table == CHANGES} == {"replayed"}
    assert {state for (_, table), state in states.items() if table == DELETES} == {"new"}
    third = again(after, 40)
    assert rows_of(third) == {SINK: [3, 8], CHANGES: [0, 1, 5, 6]}
    unpark(third, DELETES)
    assert replayed(again(third, 50)).replayed == 4
    assert rows_of(third) == {name: at for name, at in landed(*range(10)).items() if name != DEAD}
    audited(third)


def test_what_is_not_parked_is_not_unparked(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    with pytest.raises(NothingToAcceptError, match=f"table {DELETES} of stream payments is not suspended; none is"):
        unpark(one, DELETES)


def test_a_parked_table_is_begun_anew_by_unparking_alone(tmp_path: Path) -> None:
    after = again(dropped(tmp_path / "home"), 2)
    with pytest.raises(NothingToAcceptError, match="is suspended: dead letters of its records wait for it"):
        record_answer(
            after.spec, after.settings, lambda: pytest.fail("none"), Answer(recreated_table=DELETES), "ada: why"
        )


def test_an_operator_who_is_killed_between_the_two_stamps_says_so_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(batch=0)

    def killed(name: str) -> None:
        raise KeyboardInterrupt(name)

    monkeypatch.setattr("jobs.streaming.operator.unpark.step", killed)
    with pytest.raises(KeyboardInterrupt, match="after_unpark_claim"):
        unpark(after, DELETES)
    monkeypatch.undo()
    third = again(after, 30)
    third.land(*records(5), batch=0)
    assert third.letters_for(DELETES) == [1, 2, 6, 7], "it counts as parked"
    assert third.offsets(DELETES) == []
    unpark(third, DELETES)
    fourth = again(third, 40)
    fourth.land(*records(10), batch=0)
    assert replayed(fourth).replayed == 4
    assert rows_of(fourth) == {name: at for name, at in landed(*range(15)).items() if name != DEAD}
    audited(fourth)
