"""Tables that values name, that somebody drops, and that the driver begins anew by itself, on real tables."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.batch.retry import is_unavailable
from jobs.streaming.driver.opening import opening
from jobs.streaming.driver.tables import gone_tables
from jobs.streaming.driver.tables.gone_tables import NOTE, reopened_where_dropped, without_dropped
from jobs.tables.commit.history.stamp_history import history, stamps_along_main
from jobs.tables.commit.stamp.errors import TableDroppedError, TableGoneError, TargetRecreatedError
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream
from tests.helpers.stories import Killed, audited, killed_at

AGAIN: dict[str, Any] = {"by": "type", "to": "events.{value}", "recreate": True}


def record(kind: str, number: int = 0) -> dict[str, Any]:
    return {"id": f"{kind}-{number}", "type": kind, "n": number}


def again(one: RoutedStream, home: Path, epoch: int, route: dict[str, Any] | None = None) -> RoutedStream:
    """The next driver of the stream, with the same topic."""
    after = RoutedStream(home, route or AGAIN, epoch=epoch)
    after.log = list(one.log)
    return after


def test_a_table_that_was_dropped_is_begun_anew_when_a_record_names_it(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, AGAIN)
    one.land(record("a"), record("b"))
    fill_ledger(one.catalog, one.settings, [one.spec])
    one.catalog.drop_table("events.b")
    spec = without_dropped(one.stream.spec, one.catalog)
    opening._targets(spec, one.settings, one.catalog, {}, lambda: pytest.fail("its columns are declared"))
    after = again(one, home, 2)
    assert after.spec.named_tables == ("events.a",) and not after.catalog.table_exists("events.b")
    (told,) = [each for _, each in stamps_along_main(after.table.metadata, "payments") if each.kind == "accept"]
    assert told.note == NOTE and told.decision is not None and told.decision.answer == "recreated_table"
    assert told.position == {after.at: 2} and "events.b" not in told.targets
    after.land(record("a", 1), batch=0)
    assert not after.catalog.table_exists("events.b")
    after.land(record("b", 1), batch=1)
    assert after.placed() == {"events.a": [0, 2], "events.b": [3]}
    audited(after)
    third = again(after, home, 3)
    kinds = [each.kind for _, each in stamps_along_main(third.table.metadata, "payments")]
    assert kinds.count("accept") == 1, "it is said once"
    third.land(record("b", 2), batch=0)
    assert third.placed() == {"events.a": [0, 2], "events.b": [3, 4]}
    audited(third)


def test_one_that_is_put_back_later_keeps_what_it_has_and_gets_what_comes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, AGAIN)
    one.land(record("a"), record("b"))
    one.catalog.rename_table("events.b", "events.elsewhere")
    after = again(one, home, 2)
    after.land(record("a", 1), batch=0)
    after.catalog.rename_table("events.elsewhere", "events.b")
    after.land(record("b", 1), batch=1)
    assert after.placed() == {"events.a": [0, 2], "events.b": [1, 3]}
    audited(after)


def test_a_table_that_is_dropped_under_a_driver_is_begun_anew_by_the_next_opening(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, AGAIN)
    one.land(record("a"), record("b"))

    def drop() -> None:
        one.catalog.drop_table("events.b")

    one.between, said = drop, r"events\.b was dropped under the driver"
    with pytest.raises(TableDroppedError, match=said) as told, reopened_where_dropped(one.stream):
        one.land(record("a", 1), record("b", 1), batch=1)
    assert is_unavailable(told.value), "a driver opens the stream again by itself"
    assert one.offsets("events.a") == [0, 2]
    after = again(one, home, 2)
    after.land(record("b", 2), batch=0)
    assert after.placed() == {"events.a": [0, 2], "events.b": [4]}
    audited(after)


@pytest.mark.parametrize("at", ["before_dropped_tables", "after_dropped_tables"])
def test_killed_while_it_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, AGAIN)
    one.land(record("a"), record("b"))
    one.catalog.drop_table("events.b")

    killed_at(monkeypatch, gone_tables, at)
    with pytest.raises(Killed):
        again(one, home, 2)
    monkeypatch.undo()
    after = again(one, home, 3)
    after.land(record("b", 1), batch=0)
    assert after.placed() == {"events.a": [0], "events.b": [2]}
    audited(after)


def test_a_table_of_the_file_or_one_that_another_took_the_name_of_stops_the_stream(tmp_path: Path) -> None:
    home = tmp_path / "home"
    route = {**AGAIN, "tables": [{"match": "f", "table": "events.file"}]}
    one = RoutedStream(home, route)
    one.land(record("a"), record("f"))
    one.catalog.drop_table("events.file")

    def targets() -> Any:
        spec = without_dropped(one.stream.spec, one.catalog)
        return opening._targets(spec, one.settings, one.catalog, {}, lambda: pytest.fail("its columns are declared"))

    with pytest.raises(TableGoneError, match=r"table events\.file was dropped"):
        targets()
    other = SimpleNamespace(spec=one.stream.spec, id="payments")
    with pytest.raises(TableGoneError), reopened_where_dropped(other):  # pyright: ignore[reportArgumentType]
        targets()
    one.catalog.create_table("events.file", one.table.schema())
    one.catalog.drop_table("events.a")
    one.catalog.create_table("events.a", one.table.schema())
    with pytest.raises(TargetRecreatedError, match="dropped and created again"):
        targets()


def test_what_a_file_may_say_of_it() -> None:
    def spec(route: dict[str, Any]) -> StreamSpec:
        document = {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": "id string, type string"},
            "table": {"name": SINK},
        }
        return StreamSpec.model_validate({**document, "route": {"by": "type", **route}})

    to = {"to": "events.{value}"}
    entry = {"match": "a", "table": "events.a"}
    plain, said = spec(to), spec({**to, "recreate": True, "on_table_error": "stop"})
    assert plain.route is not None and not plain.route.recreate and plain.route.on_table_error == "stop"
    assert plain.config_hash == said.config_hash, "no row is another one for it"
    assert spec({"tables": [entry]}).config_hash == spec({"tables": [{**entry, "on_table_error": "stop"}]}).config_hash
    own = spec({"tables": [{"match": "a", "table": SINK, "on_table_error": "stop"}]})
    assert own.route is not None
    for route, why in (
        ({"tables": [entry], "recreate": True}, "is about dynamic tables"),
        ({**to, "on_table_error": "go on"}, "must be stop or park; found 'go on'"),
    ):
        with pytest.raises(ValidationError, match=why):
            spec(route)


def test_a_stream_whose_file_says_nothing_of_it_stops(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, {**AGAIN, "recreate": False})
    one.land(record("a"))
    one.catalog.drop_table("events.a")
    assert without_dropped(one.stream.spec, one.catalog).named_tables == ("events.a",)
    with pytest.raises(TableGoneError) as stopped, reopened_where_dropped(one.stream):
        opening._targets(one.stream.spec, one.settings, one.catalog, {}, lambda: pytest.fail("declared"))
    assert stopped.value.table == "events.a" and not is_unavailable(stopped.value)
    assert history(one.table.metadata, "payments").newest is not None
    # Once the file says so, the same stop is none.
    after = again(one, home, 2)
    after.land(record("a", 1), batch=0)
    assert after.placed() == {"events.a": [1]}
