"""Parked tables with columns of their own, on real tables: nobody decodes their records until a replay does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError

from jobs.base.errors import FrazilError, StreamStopped
from jobs.dead_letters.expiry.dead_letter_states import StateChange, change_dead_letters
from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import dry_run
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.stamp.errors import SchemaChangeError, TableUnableError
from jobs.tables.dead_letter_table.parked_letters import TABLE_PARKED
from jobs.tables.dead_letter_table.selection import parse_selection
from jobs.tables.dead_letter_table.tally import tally_dead_letters
from tests.helpers.lane_stream import DEAD, LaneStream, Log
from tests.helpers.parking import Killed, audited, killed, replayed
from tests.helpers.parking import lane_offsets as offsets
from tests.helpers.parking import lane_parked as parked
from tests.helpers.parking import lane_waiting as waiting

A, B = "lake.a", "lake.b"
PARK: dict[str, Any] = {"by": "topic", "to": "lake.{value}", "on_table_error": "park"}
FILED: dict[str, Any] = {
    "by": "topic",
    "tables": [{"match": "a", "table": A}, {"match": "b", "table": B}],
    "on_table_error": "park",
}
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    known: Log = {}

    def make(epoch: int = 1, route: dict[str, Any] = PARK, **more: Any) -> LaneStream:
        return LaneStream(tmp_path / "home", route, known, monkeypatch, epoch, **more)

    return make


def begun(opened: Opened, route: dict[str, Any] = PARK, **more: Any) -> LaneStream:
    one = opened(route=route, **more)
    one.produce("a", {"id": 1}, {"id": 2})
    one.produce("b", {"name": "x"})
    one.land()
    return one


def unpark(one: LaneStream, table: str) -> None:
    kafka: Any = SimpleNamespace(state=lambda source: one.state)
    record_answer(one.spec, one.settings, lambda: kafka, Answer(unpark=table), "ada: it is back")


def refuses_commits(monkeypatch: pytest.MonkeyPatch, name: str) -> Callable[[], None]:
    """Makes the catalog refuse commits to a table; returns what gives the right back."""
    commit = SqlCatalog.commit_table

    def refused(self: SqlCatalog, table: Any, *given: Any) -> Any:
        if ".".join(table.name()) == name:
            raise ForbiddenError("user frazil may not write")
        return commit(self, table, *given)

    monkeypatch.setattr(SqlCatalog, "commit_table", refused)
    return lambda: monkeypatch.setattr(SqlCatalog, "commit_table", commit)


def test_what_a_step_drops_when_it_comes_back_waits_until_it_is_dismissed(opened: Opened) -> None:
    more: dict[str, Any] = {"transform": [{"where": "id > 0"}], "errors": {"replay": {"park_after": 1}}}
    one = opened(**more)
    one.produce("a", {"id": 1})
    one.land()
    one.catalog.rename_table(A, "lake.aside")
    after = opened(20, **more)
    after.produce("a", {"id": 0}, {"id": 2})
    after.land()
    held = waiting(after, A)
    assert held[-2:] == [1, 2]
    after.catalog.rename_table("lake.aside", A)
    unpark(after, A)
    third = opened(40, **more)
    assert replayed(third).replayed == 1
    assert offsets(third)[A] == [0, 2]
    letters = third.catalog.load_table(DEAD)
    assert tally_dead_letters(letters, "shop").waiting_for
    chosen: dict[str, Any] = {"stages": (), "fields": (), "since": None, "until": None, "offsets": (), "limit": None}
    where = "replay_error_class = 'filtered'"
    selection = parse_selection(
        **chosen, reasons=(TABLE_PARKED,), states=(), where=where, default_states=("new", "failed_again", "parked")
    )
    dismissed = StateChange("dismissed", "ada", "no row any more")
    assert change_dead_letters(third.stream.spec, third.settings, third.catalog, selection, dismissed) == 1
    assert not tally_dead_letters(third.catalog.load_table(DEAD), "shop").waiting_for
    audited(third)


@pytest.mark.parametrize("route", [PARK, FILED], ids=["named by topics", "of the file"])
def test_one_that_is_gone_is_parked_and_the_others_evolve(opened: Opened, route: dict[str, Any]) -> None:
    one = begun(opened, route)
    one.catalog.drop_table(A)
    after = opened(20, route)
    assert parked(after) == {A}
    after.produce("a", {"id": 3, "more": True}, None, b"none")
    after.produce("b", {"name": "y", "more": 1})
    done = after.land()
    assert (done.counts.read, done.counts.landed, done.counts.dead, done.counts.tombstones) == (4, 3, 0, 1)
    assert done.parked == {A: 4} and not after.catalog.table_exists(A)
    assert after.columns(B) == {"name": "string", "more": "long"}
    # Nobody can say whether it had the batch before.
    assert offsets(after) == {B: [0, 1], DEAD: [0, 1, 2, 4]}
    letters = after.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
    assert {(each["offset"], each["value"], each["target"]) for each in letters} == {
        (0, b'{"id": 1}', A),
        (1, b'{"id": 2}', A),
        (2, json.dumps({"id": 3, "more": True}).encode(), A),
        (4, b"none", A),
    }
    assert {(each["error_class"], each["stage"], each["epoch"]) for each in letters} == {(TABLE_PARKED, "commit", None)}
    assert replayed(after).replayed == 0 and dry_run(after.spec, after.catalog, ReplayRequest()).selected == 0
    audited(after, gone=A)
    unpark(after, A)
    assert after.columns(A) == {"id": "long", "more": "boolean"}, "of its records, as ever"
    third = opened(40, route)
    third.produce("a", {"id": 5})
    third.land()
    assert dry_run(third.spec, third.catalog, ReplayRequest()).replayed == 3
    result = replayed(third)
    assert (result.replayed, result.failed_again) == (3, 1), "what is no record stays a letter"
    assert offsets(third) == {A: [0, 1, 2, 5], B: [0, 1], DEAD: [0, 1, 2, 4]}
    rows = third.catalog.load_table(A).scan().to_arrow().to_pylist()
    assert {row["id"]: row["more"] for row in rows} == {1: None, 2: None, 3: True, 5: None}
    assert replayed(third).replayed == 0
    audited(third)


def test_one_that_is_put_back_keeps_what_it_has_and_needs_a_column_for_what_came(opened: Opened) -> None:
    one = begun(opened)
    one.catalog.rename_table(A, "lake.aside")
    after = opened(20)
    after.produce("a", {"id": 3}, {"id": 4, "more": "m"})
    after.land()
    after.catalog.rename_table("lake.aside", A)
    unpark(after, A)
    result = replayed(after)
    assert (result.replayed, result.failed_again) == (1, 1)
    assert offsets(after)[A] == [0, 1, 2]
    rows = after.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
    (told,) = [each for each in rows if each["state"] == "failed_again"]
    assert told["offset"] == 3 and "more" in told["replay_message"]
    # The next record that has the field brings the column, and the letter comes home with it.
    third = opened(40)
    third.produce("a", {"id": 5, "more": "n"})
    third.land()
    assert replayed(third).replayed == 1
    rows = third.catalog.load_table(A).scan().to_arrow().to_pylist()
    assert {row["id"]: row["more"] for row in rows} == {1: None, 2: None, 3: None, 4: "m", 5: "n"}
    audited(third)


@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "its record is lost"])
@pytest.mark.parametrize("lacking", [(A,), (A, B), (A, B, DEAD)], ids=["it lacks the batch", "another", "all"])
def test_a_batch_that_it_lacks_becomes_letters(opened: Opened, lacking: tuple[str, ...], lost: bool) -> None:
    one = begun(opened)
    one.produce("a", {"id": 3}, b"none", {"id": 5})
    one.produce("b", {"name": "y"}, b"none")
    for name in lacking:
        one.stream.targets[name]._commit_once = killed  # type: ignore[assignment]
    with pytest.raises(Killed):
        one.land(1)
    if lost:
        one.stream.folder.store.delete(one.stream.folder.pending(one.stream.epoch))
    one.catalog.rename_table(A, "lake.aside")
    after = opened(20)
    if DEAD in lacking and lost:
        # Nobody knows which record failed: the table's columns say it.
        with pytest.raises(StreamStopped, match=f"had failed and would not fail now: {A} was suspended before"):
            after.land()
        assert waiting(after, A) == [] and offsets(after) == {B: [0]}
        after.catalog.rename_table("lake.aside", A)
        after = opened(30)
        assert parked(after) == {A}
        after.land()
        after.catalog.rename_table(A, "lake.aside")
    else:
        after.land()
    assert waiting(after, A) == [2, 4] and offsets(after)[B] == [0, 1]
    assert sorted(after.letters()) == [("a", 2), ("a", 3), ("a", 4), ("b", 2)]
    audited(after, gone=A)
    after.catalog.rename_table("lake.aside", A)
    unpark(after, A)
    third = opened(40)
    assert replayed(third).replayed == 2
    assert offsets(third)[A] == [0, 1, 2, 4] and len(offsets(third)[DEAD]) == 4
    audited(third)


def test_one_whose_alteration_or_commit_the_catalog_refuses_is_parked(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = begun(opened)
    back = refuses_commits(monkeypatch, A)
    one.produce("a", {"id": 3, "more": 1})
    one.produce("b", {"name": "y", "more": 1})
    with pytest.raises(TableUnableError, match=f"{A} takes no commits, and is suspended: "):
        one.land(1)
    assert parked(one) == {A} and not one.stream.folder.pending_records()
    after = opened(20)
    after.land()
    assert offsets(after) == {A: [0, 1], B: [0, 1], DEAD: [2]} and waiting(after, A) == [2]
    after.produce("b", {"name": "z"})
    refuses_commits(monkeypatch, B)
    with pytest.raises(TableUnableError, match=f"{B} takes no commits, and is suspended when"):
        after.land(1)
    back()
    audited_after = opened(30)
    audited_after.land()
    assert offsets(audited_after)[B] == [0, 1, 2] and parked(audited_after) == {A}, "it takes it from the record"
    unpark(audited_after, A)
    third = opened(50)
    third.produce("a", {"id": 4, "more": 2})
    third.land()
    assert replayed(third).replayed == 1
    assert offsets(third)[A] == [0, 1, 2, 3]
    audited(third)


def test_a_change_for_which_the_stream_is_to_stop_parks_nothing(opened: Opened) -> None:
    one = begun(opened, evolve={"add": "fail"})
    one.produce("a", {"id": 3, "more": 1})
    with pytest.raises(SchemaChangeError):
        one.land(1)
    assert parked(one) == set()


def test_one_that_nothing_says_the_columns_of_stays_parked(opened: Opened) -> None:
    one = begun(opened)
    one.catalog.drop_table(B)
    after = opened(20)
    after.land()
    after.log[next(at for at in after.log if at.topic == "b")][:] = [None]
    with pytest.raises(FrazilError, match="no record") as told:
        unpark(after, B)
    assert told.value.fix == f"create table {B}; then give the same answer again" and parked(after) == {B}


def test_records_of_it_hold_the_watermark_up(opened: Opened) -> None:
    decode = {"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"}
    more: dict[str, Any] = {"decode": decode, "event_time": {"column": "at", "grace": "10m", "late": "dead_letter"}}
    one = opened(**more)
    for topic in ("a", "b"):
        one.produce(topic, {"at": "2026-03-01T12:00:00Z"})
    one.land()
    known = one.stream.watermark_ms
    one.catalog.drop_table(A)
    after = opened(20, **more)
    # Whether the first one is late nobody can tell while the table is parked.
    after.produce("a", {"at": "2026-03-01T10:00:00Z"}, {"at": "2026-03-01T20:00:00Z"})
    after.produce("b", {"at": "2026-03-01T20:00:00Z"})
    after.land()
    assert known is not None and after.stream.watermark_ms == known
    assert waiting(after, A) == [0, 1, 2] and offsets(after)[B] == [0, 1]
