"""Tables that values of records name, on real tables: made within the batch, once, bounded, and never guessed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.base.errors import FrazilError
from jobs.streaming.driver.tables import new_tables
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.streaming.operator.reset import move_positions
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.target_directory import directory_key
from jobs.tables.commit.stamp.target_positions import restart_positions
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream
from tests.helpers.stories import Killed, audited, forget_records, killed, killed_at

DEAD = f"{SINK}_dead"
NAMED: dict[str, Any] = {"by": "type", "to": "events.{value}"}


def record(kind: str | None, number: int = 0) -> dict[str, Any]:
    return {"id": f"{kind}-{number}", "type": kind, "n": number}


def reasons(one: RoutedStream) -> dict[int, str]:
    rows = one.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
    return {each["offset"]: each["message"] for each in rows}


def test_each_value_has_a_table_which_is_made_within_the_batch_of_its_first_record(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    done = one.land(record("a"), record("b"), record("a", 1))
    assert one.runs == 2, "once to see which tables are missing, once with them"
    assert one.placed() == {"events.a": [0, 2], "events.b": [1]}
    assert (done.counts.read, done.counts.landed) == (3, 3)
    one.land(record("b", 1), record("a", 2), batch=1)
    assert one.runs == 1
    one.land(record("c"), batch=2)
    assert one.placed() == {"events.a": [0, 2, 4], "events.b": [1, 3], "events.c": [5]}
    assert directory_key("payments") in one.table.properties
    audited(one)
    after = RoutedStream(tmp_path / "home", NAMED, epoch=2)
    assert after.spec.named_tables == ("events.a", "events.b", "events.c")
    after.log = one.log
    after.land(record("c", 1), record("d"), batch=0)
    assert after.placed()["events.c"] == [5, 6] and after.placed()["events.d"] == [7]
    audited(after)


def test_entries_come_before_names_and_what_neither_takes_follows_unmatched(tmp_path: Path) -> None:
    route = {
        **NAMED,
        "tables": [{"match": "a|z", "table": "orders.first"}, {"match": "z", "table": "orders.last"}],
        "unmatched": {"table": "orders.rest"},
    }
    one = RoutedStream(tmp_path / "home", route)
    one.land(record("a"), record("b"), record("z"), record(None), record("not safe"))
    assert one.placed() == {
        "orders.first": [0, 2],
        "orders.last": [2],
        "events.b": [1],
        "orders.rest": [3, 4],
    }
    audited(one)


@pytest.mark.parametrize("value", ["", "a-b", "ä", "a.b", "a b", "../x", "x" * 101, 'a";--'])
def test_a_value_that_is_no_name_is_refused_with_the_reason(tmp_path: Path, value: str) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record(value), record("x" * 100))
    assert one.placed() == {DEAD: [0], f"events.{'x' * 100}": [1]}
    assert one.letters == {0: "unrouted"} and "can be part of a table's name" in reasons(one)[0]
    audited(one)


def test_of_two_values_that_would_give_one_name_the_first_has_it(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("Ins"), record("INS"), record("Ins", 1), record("ins"))
    assert one.placed() == {"events.Ins": [0, 2], DEAD: [1, 3]}
    assert "events.Ins has that name but for upper and lower case" in reasons(one)[1]
    after = RoutedStream(tmp_path / "home", NAMED, epoch=2)
    after.log = one.log
    after.land(record("INS", 1), record("Ins", 2), batch=0)
    assert after.placed() == {"events.Ins": [0, 2, 5], DEAD: [1, 3, 4]}
    audited(after)


def test_no_value_names_the_streams_own_tables(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {"by": "type", "to": "orders.{value}"})
    one.land(record("payments"), record("payments_dead"), record("Payments"), record("other"))
    assert one.placed() == {DEAD: [0, 1, 2], "orders.other": [3]}
    audited(one)


def test_no_value_names_a_table_of_somebody_else(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.catalog.create_namespace("events")
    one.catalog.create_table("events.theirs", one.table.schema())
    one.land(record("theirs"), record("a"), record("theirs", 1))
    one.land(record("theirs", 2), batch=1)
    assert one.runs == 1, "it is not looked up again"
    assert one.placed() == {DEAD: [0, 2, 3], "events.a": [1]}
    assert "events.theirs exists" in reasons(one)[0]
    assert one.catalog.load_table("events.theirs").metadata.current_snapshot_id is None
    audited(one)


def test_a_former_table_of_the_stream_that_cannot_hold_the_rows_stops_nothing(tmp_path: Path) -> None:
    route = {"by": "type", "to": "orders.{value}"}
    one = RoutedStream(tmp_path / "home", route, errors={"stop_above": "off", "dead_letters": {"table": "orders.old"}})
    one.land(record("not safe"))
    # The dead letters were elsewhere once, and that table knows the stream.
    after = RoutedStream(tmp_path / "home", route, epoch=2)
    after.log = one.log
    after.land(record("old"), record("a"), batch=0)
    assert after.placed() == {DEAD: [1], "orders.a": [2]}
    assert "orders.old exists, and does not" in reasons(after)[1]


@pytest.mark.parametrize("unmatched", ["dead_letter", "drop", {"table": SINK}])
def test_beyond_the_limit_values_follow_unmatched(tmp_path: Path, unmatched: Any) -> None:
    route = {**NAMED, "limit": 3, "unmatched": unmatched, "tables": [{"match": "s", "table": "orders.s"}]}
    if isinstance(unmatched, dict):
        route["limit"] = 4
    one = RoutedStream(tmp_path / "home", route)
    done = one.land(record("a"), record("b"), record("c"), record("a", 1), record("d"), record("s"))
    placed = {"events.a": [0, 3], "events.b": [1], "orders.s": [5]}
    if unmatched == "dead_letter":
        placed[DEAD] = [2, 4]
        assert "as many as route.limit allows" in reasons(one)[2]
    elif unmatched == "drop":
        assert done.counts.filtered == 2
    else:
        placed[SINK] = [2, 4]
    assert one.placed() == placed
    one.land(record("e"), batch=1)
    assert one.runs == 1, "no table is looked for that is not to be made"
    audited(one)


def test_topics_by_pattern_have_a_table_each(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {"by": "topic", "to": "lake.{value}"})
    one.land(record("a"), record("b"))
    assert one.placed() == {"lake.payments": [0, 1]}
    audited(one)


@pytest.mark.parametrize("at", ["before_new_tables", "after_new_tables"])
@pytest.mark.parametrize("comes_again", [True, False])
def test_killed_while_tables_are_made_the_next_run_takes_them_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, comes_again: bool
) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("a"))

    killed_at(monkeypatch, new_tables, at)
    with pytest.raises(Killed):
        one.land(record("b"), record("c"), batch=1)
    monkeypatch.undo()
    made = one.catalog.table_exists("events.b")
    assert made == (at == "after_new_tables")
    uuid = one.catalog.load_table("events.b").metadata.table_uuid if made else None
    after = RoutedStream(tmp_path / "home", NAMED, epoch=2)
    assert after.spec.named_tables == ("events.a",), "nothing has landed there"
    after.log = one.log if comes_again else one.log[:1]
    after.land(record("a", 1), batch=0)
    last = len(after.log) - 1
    assert after.placed() == {"events.a": [0, last]} | ({"events.b": [1], "events.c": [2]} if comes_again else {})
    if uuid and comes_again:
        assert after.catalog.load_table("events.b").metadata.table_uuid == uuid
    audited(after)


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("killed_at", ["events.b", "events.c", DEAD])
def test_a_batch_with_new_tables_that_a_crash_left_in_some_is_completed_in_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: str, recorded: bool
) -> None:
    route = {**NAMED, "limit": 3}
    one = RoutedStream(tmp_path / "home", route)
    one.land(record("a"))
    run = one.runner._run_tasks  # pyright: ignore[reportPrivateUsage]

    def armed(*args: Any) -> Any:
        if killed_at in one.stream.targets:
            monkeypatch.setattr(one.stream.targets[killed_at], "land", killed)
        return run(*args)

    monkeypatch.setattr(one.runner, "_run_tasks", armed)
    with pytest.raises(Killed):
        one.land(record("b"), record("c"), record("beyond the limit"), record("d"), record("a", 1), batch=1)
    if not recorded:
        forget_records(one)
    after = RoutedStream(tmp_path / "home", route, epoch=2)
    after.log = one.log
    assert set(after.spec.named_tables) == {"events.a", "events.b", "events.c"}
    after.land(record("c", 1), batch=0)
    assert after.placed() == {"events.a": [0, 5], "events.b": [1], "events.c": [2, 6], DEAD: [3, 4]}
    audited(after)


def test_a_driver_takes_over_while_another_makes_tables_and_they_are_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("a"))
    successors: list[RoutedStream] = []

    def taken_over(name: str) -> None:
        if name == "after_new_tables" and not successors:
            monkeypatch.undo()
            other = RoutedStream(tmp_path / "home", NAMED, epoch=2)
            other.log = list(one.log)
            successors.append(other)
            other.land(record("c"), batch=0)

    monkeypatch.setattr(new_tables, "step", taken_over)
    with pytest.raises(FrazilError, match="another driver took over"):
        one.land(record("b"), batch=1)
    (other,) = successors
    assert other.placed() == {"events.a": [0], "events.b": [1], "events.c": [2]}
    audited(other)


def test_a_table_that_was_dropped_stops_the_stream_and_is_made_anew_when_its_next_record_comes(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("a"), record("b"))
    one.catalog.drop_table("events.b")
    record_answer(one.spec, one.settings, lambda: None, Answer(recreated_table="events.b"), "ada: gone")  # type: ignore[arg-type]
    after = RoutedStream(tmp_path / "home", NAMED, epoch=9)
    after.log = one.log
    assert after.spec.named_tables == ("events.a",)
    after.land(record("a", 1), batch=0)
    assert not after.catalog.table_exists("events.b")
    after.land(record("b", 1), batch=1)
    assert after.placed() == {"events.a": [0, 2], "events.b": [3]}


def test_names_may_be_taken_away_from_a_route_and_given_back(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("a"), record("b"))
    fixed = RoutedStream(tmp_path / "home", {"by": "type", "tables": [{"match": ".*", "table": SINK}]}, epoch=2)
    fixed.log = one.log
    fixed.land(record("a", 1), batch=0)
    assert fixed.spec.named_tables == ()
    after = RoutedStream(tmp_path / "home", NAMED, epoch=3)
    after.log = one.log
    after.land(record("a", 2), record("c"), batch=0)
    assert after.placed() == {SINK: [2], "events.a": [0, 3], "events.c": [4]}
    newest = history(after.table.metadata, "payments").newest
    assert newest is not None and "events.b" not in newest.targets
    audited(after)


@pytest.mark.parametrize("landed", [True, False], ids=["after it", "before anything lands"])
@pytest.mark.parametrize(
    "route",
    [NAMED, {"by": "type", "tables": [{"match": "a", "table": "events.a"}, {"match": "b", "table": "events.b"}]}],
    ids=["named by values", "named by the file"],
)
def test_a_table_that_was_none_of_the_stream_for_a_while_stands_where_the_stream_does(
    tmp_path: Path, route: dict[str, Any], landed: bool
) -> None:
    """Its own stamp says more than what the stream has read since its offsets were reset."""
    one = RoutedStream(tmp_path / "home", route)
    one.land(record("a"), record("b"), record("a", 1), record("b", 1))
    fixed = RoutedStream(tmp_path / "home", {"by": "type", "tables": [{"match": ".*", "table": SINK}]}, epoch=2)
    fixed.log = one.log
    if landed:
        fixed.land(record("a", 2), batch=0)
    fixed.stream.log = LogState({"payments": "id"}, {one.at: 0}, {one.at: len(one.log)})
    fixed.stream.epoch = 3
    move_positions(fixed.stream, fixed.catalog, {one.at: 1}, "ada: again", [])
    after = RoutedStream(tmp_path / "home", route, epoch=4)
    assert restart_positions(after.stream.positions) == {one.at: 1}
    after.log = one.log
    after.land(batch=0)
    assert after.offsets("events.a")[:3] == [0, 2, 2] and after.offsets("events.b") == [1, 1, 3, 3]
    after.land(record("b", 2), batch=1)
    assert after.offsets("events.b") == [1, 1, 3, 3, len(after.log) - 1]


def test_only_the_coordinator_tells_the_tables(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    assert with_named_tables(one.spec, one.catalog).target_names == (SINK, DEAD)
    one.land(record("a"), record("b"))
    assert with_named_tables(one.spec, one.catalog).target_names == (SINK, DEAD, "events.a", "events.b")
    assert json.loads(one.table.properties[directory_key("payments")])
