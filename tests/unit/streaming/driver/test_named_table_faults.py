"""What happens to the tables that values name, or a route does: altered, dropped, put back, or never Iceberg's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import NoSuchPropertyException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.types import IntegerType

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.opening import opening
from jobs.streaming.driver.tables import new_tables
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.stamp.errors import NothingToAcceptError, RolledBackError, TargetRecreatedError
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import COLUMNS, RoutedStream
from tests.helpers.stories import Killed, forget_records, killed, killed_at

NAMED: dict[str, Any] = {"by": "type", "to": "events.{value}"}
WIDER = {"value": "json", "schema": f"{COLUMNS}, m int"}


def record(kind: str, number: int = 0) -> dict[str, Any]:
    return {"id": f"{kind}-{number}", "type": kind, "n": number}


def again(one: RoutedStream, home: Path, route: dict[str, Any] | None, epoch: int, **more: Any) -> RoutedStream:
    """The next driver of the stream, with the same topic."""
    after = RoutedStream(home, route, epoch=epoch, **more)
    after.log = list(one.log)
    return after


def answer(one: RoutedStream, given: Answer) -> dict[str, Any]:
    """What an operator's answer stamps, by table."""
    return record_answer(one.spec, one.settings, lambda: None, given, "ada: seen")  # pyright: ignore[reportArgumentType]


def kill_at_commit(one: RoutedStream, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the next commit to a target be that of a driver that is killed before it."""
    run = one.runner._run_tasks

    def armed(*arguments: Any) -> Any:
        if name in one.stream.targets:
            monkeypatch.setattr(one.stream.targets[name], "land", killed)
        return run(*arguments)

    monkeypatch.setattr(one.runner, "_run_tasks", armed)


@pytest.mark.parametrize("unmatched", ["dead_letter", "drop"])
def test_a_table_of_a_value_that_lacks_a_declared_column_stops_the_start(tmp_path: Path, unmatched: str) -> None:
    home, route = tmp_path / "home", {**NAMED, "unmatched": unmatched}
    one = RoutedStream(home, route)
    one.land(record("a"), record("b"))
    with one.table.update_schema() as update:
        update.add_column("m", IntegerType())
    with pytest.raises(FrazilError, match=r"its dependent table events\.a cannot hold what the file declares"):
        RoutedStream(home, route, epoch=2, decode=WIDER)
    for name in ("events.a", "events.b"):
        with one.catalog.load_table(name).update_schema() as update:
            update.add_column("m", IntegerType())
    after = again(one, home, route, 3, decode=WIDER)
    after.land(record("a", 1), record("b", 1), batch=0)
    assert after.placed() == {"events.a": [0, 2], "events.b": [1, 3]}


def test_an_empty_table_that_a_killed_driver_made_is_made_as_the_file_declares_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, route = tmp_path / "home", {**NAMED, "unmatched": "drop"}
    one = RoutedStream(home, route)
    one.land(record("a"))

    killed_at(monkeypatch, new_tables, "after_new_tables")
    with pytest.raises(Killed):
        one.land(record("b"), batch=1)
    monkeypatch.undo()
    for name in (SINK, "events.a"):
        with one.catalog.load_table(name).update_schema() as update:
            update.add_column("m", IntegerType())
    after = again(one, home, route, 2, decode=WIDER)
    after.land(record("a", 1), batch=0)
    assert after.placed() == {"events.a": [0, 2], "events.b": [1]}


@pytest.mark.parametrize(
    ("route", "changed"),
    [
        (NAMED, NAMED),
        (
            {"by": "type", "tables": [{"match": "a", "table": "events.a"}, {"match": "b", "table": "events.b"}]},
            {"by": "type", "tables": [{"match": "a|b", "table": "events.a"}]},
        ),
    ],
)
def test_a_record_of_which_nothing_landed_is_dropped_where_a_table_of_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: dict[str, Any], changed: dict[str, Any]
) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, route)
    one.land(record("a"))
    kill_at_commit(one, monkeypatch, SINK)
    with pytest.raises(Killed):
        one.land(record("b"), record("a", 1), batch=1)
    monkeypatch.undo()
    one.catalog.drop_table("events.b")
    after = again(one, home, changed, 2)
    after.land(record("b", 5), batch=0)
    placed = [offset for offsets in after.placed().values() for offset in offsets]
    assert sorted(placed) == [0, 1, 2, 3]


def test_a_table_that_is_begun_anew_does_not_hold_up_what_another_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, NAMED)
    one.land(record("a"), record("b"))
    kill_at_commit(one, monkeypatch, "events.a")
    with pytest.raises(Killed):
        one.land(record("b", 1), record("a", 1), batch=1)
    monkeypatch.undo()
    forget_records(one)
    one.catalog.drop_table("events.b")
    answer(one, Answer(recreated_table="events.b"))
    after = again(one, home, NAMED, 9)
    after.land(record("a", 7), batch=0)
    assert after.placed()["events.a"] == [0, 3, 4]


def test_a_former_coordinator_among_the_tables_of_a_route_is_not_taken_back(tmp_path: Path) -> None:
    home, second = tmp_path / "home", "orders.second"
    one = RoutedStream(home, None)
    one.land(record("a"), record("b"))
    dead = {"stop_above": "off", "dead_letters": {"table": f"{SINK}_dead"}}
    two = again(one, home, None, 2, table={"name": second}, errors=dead)
    two.land(record("a", 1), record("b", 1), batch=0)
    route = {"by": "type", "tables": [{"match": "a", "table": second}, {"match": "b", "table": SINK}]}
    three = again(two, home, route, 3)
    assert three.stream.positions[second] == two.stream.positions[second]


@pytest.mark.parametrize("there", ["view", "format"])
def test_a_value_that_names_what_is_no_iceberg_table_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    create, load = one.catalog.create_table, one.catalog.load_table

    def refuse_create(identifier: Any, *arguments: Any, **more: Any) -> Any:
        if there == "view" and "other" in str(identifier):
            raise TableAlreadyExistsError("View with same name already exists: events.other")
        return create(identifier, *arguments, **more)

    def refuse_load(identifier: Any) -> Any:
        if there == "format" and "other" in str(identifier):
            raise NoSuchPropertyException("Property table_type missing, could not determine type: events.other")
        return load(identifier)

    monkeypatch.setattr(one.catalog, "create_table", refuse_create)
    monkeypatch.setattr(one.catalog, "load_table", refuse_load)
    done = one.land(record("a"), record("other"))
    assert (done.counts.landed, done.counts.dead) == (1, 1)
    assert one.placed() == {"events.a": [0], f"{SINK}_dead": [1]}
    (letter,) = one.catalog.load_table(f"{SINK}_dead").scan().to_arrow().to_pylist()
    assert (letter["error_class"], letter["offset"]) == ("unrouted", 1)
    assert "events.other exists and is not one" in letter["message"]


@pytest.mark.parametrize("times", [1, 3])
def test_a_table_that_is_dropped_while_it_is_taken_is_looked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """By the same batch; where that does not help, by the next one that names it."""
    one = RoutedStream(tmp_path / "home", {**NAMED, "unmatched": {"table": "events.rest"}})
    make, dropped = new_tables.ensure_routed_table, list[str]()

    def drop_first(spec: StreamSpec, catalog: Any, name: str) -> Any:
        made = make(spec, catalog, name)
        if len(dropped) < times:
            dropped.append(name)
            if len(dropped) == times == 1:
                catalog.drop_table(name)
            raise NoSuchTableError(name)
        return made

    make(one.stream.spec.with_named_tables(["events.a"]), one.catalog, "events.a")
    monkeypatch.setattr(new_tables, "ensure_routed_table", drop_first)
    one.land(record("a"))
    assert dropped == ["events.a"] * times
    one.land(record("a", 1), batch=1)
    assert one.placed() == ({"events.a": [0, 1]} if times == 1 else {"events.rest": [0], "events.a": [1]})


def rolled_back_aside(home: Path) -> RoutedStream:
    """A stream whose table events.b was rolled back while the file named no tables by values."""
    one = RoutedStream(home, NAMED)
    one.land(record("a"), record("b"))
    one.land(record("b", 1), batch=1)
    fixed = again(one, home, {"by": "type", "tables": [{"match": ".*", "table": SINK}]}, 2)
    fixed.land(record("a", 1), batch=0)
    table = one.catalog.load_table("events.b")
    first = next(each for each in table.metadata.snapshots if "added-records" in each.summary.additional_properties)  # pyright: ignore[reportOptionalMemberAccess]
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    return again(fixed, home, NAMED, 3)


def test_a_former_table_that_was_rolled_back_goes_on_once_an_operator_leaves_its_records_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    stopped = rolled_back_aside(home)
    with pytest.raises(RolledBackError, match=r"(?s)events\.b, which was rolled back while it was no table.*keep`"):
        stopped.land(record("a", 2), record("b", 2), batch=0)
    with pytest.raises(NothingToAcceptError, match=r"events\.b was rolled back while it was no table"):
        answer(stopped, Answer(rollback="reland"))
    assert set(answer(stopped, Answer(rollback="keep"))) == {"events.b"}
    with pytest.raises(NothingToAcceptError, match="no table of the stream was rolled back"):
        answer(stopped, Answer(rollback="keep"))
    after = again(stopped, home, NAMED, 10)
    after.log = after.log[:4]
    after.land(record("a", 2), record("b", 2), batch=0)
    assert after.placed() == {SINK: [3], "events.a": [0, 4], "events.b": [1, 5]}
    fill_ledger(after.catalog, after.settings, [after.spec])
    found = audit(after.stream.spec.model_copy(), after.settings, after.catalog, full=True)
    assert not found.problems, found.problems


@pytest.mark.parametrize("config", ["same", "changed"])
def test_a_table_that_is_gone_is_told_before_any_is_made_also_without_the_lease(tmp_path: Path, config: str) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("a"), record("b"))
    one.catalog.drop_table("events.b")
    route = NAMED if config == "same" else {**NAMED, "limit": 7}
    document = one.spec.model_dump(exclude_unset=True) | {"route": route}
    spec = with_named_tables(StreamSpec.model_validate(document), one.catalog)
    with pytest.raises(TargetRecreatedError, match=r"(?s)events\.b was dropped.*--recreated events\.b"):
        opening._targets(spec, one.settings, one.catalog, {}, lambda: pytest.fail("its columns are declared"))
    assert not one.catalog.table_exists("events.b")


def test_a_declared_table_that_is_gone_is_told_without_the_lease_too(tmp_path: Path) -> None:
    route = {"by": "type", "tables": [{"match": "a", "table": "events.a"}, {"match": "b", "table": "events.b"}]}
    one = RoutedStream(tmp_path / "home", route)
    one.land(record("a"), record("b"))
    one.catalog.drop_table("events.b")
    with pytest.raises(TargetRecreatedError, match=r"events\.b was dropped"):
        opening._targets(one.spec, one.settings, one.catalog, {}, lambda: pytest.fail("its columns are declared"))
    assert not one.catalog.table_exists("events.b")


@pytest.mark.parametrize(
    "route", [NAMED, {"by": "type", "tables": [{"match": x, "table": f"events.{x}"} for x in "abc"]}]
)
def test_a_table_that_is_renamed_under_a_batch_keeps_no_other_from_it_and_gets_it_once_it_is_back(
    tmp_path: Path, route: dict[str, Any]
) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, route)
    one.land(record("a"), record("b"), record("c"))

    def rename() -> None:
        one.catalog.rename_table("events.a", "events.elsewhere")

    one.between = rename
    with pytest.raises(TargetRecreatedError, match=r"events\.a was dropped"):
        one.land(record("a", 1), record("b", 1), record("c", 1), batch=1)
    assert one.offsets("events.b") == [1, 4] and one.offsets("events.c") == [2, 5]
    assert one.offsets("events.elsewhere") == [0]
    with pytest.raises(TargetRecreatedError, match=r"events\.a was dropped"):
        opening._targets(one.stream.spec, one.settings, one.catalog, {}, lambda: pytest.fail("declared"))
    one.catalog.rename_table("events.elsewhere", "events.a")
    after = again(one, home, route, 2)
    after.land(record("b", 2), batch=0)
    assert after.placed() == {"events.a": [0, 3], "events.b": [1, 4, 6], "events.c": [2, 5]}
