"""Tables that drivers which were taken over do not make any more, or have made in the place of dropped ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.batch import batch_commit
from jobs.streaming.driver.opening import opening
from jobs.streaming.driver.tables.routed_tables import ensure_routed_table
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.stamp.errors import FencedError, TableGoneError, TargetRecreatedError
from tests.helpers.lane_stream import LaneStream, Log
from tests.helpers.routed_stream import RoutedStream

NAMED: dict[str, Any] = {"by": "type", "to": "events.{value}"}
BY_TOPIC: dict[str, Any] = {"by": "replace(_topic, '.', '_')", "to": "lake.{value}"}


def record(kind: str, number: int = 0) -> dict[str, Any]:
    return {"id": f"{kind}-{number}", "type": kind, "n": number}


def targets(one: RoutedStream) -> Any:
    """What whoever opens the stream finds."""
    return opening._targets(one.stream.spec, one.settings, one.catalog, {}, lambda: pytest.fail("they are declared"))


def test_a_driver_that_was_taken_over_makes_no_table_that_a_value_names(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("a"))
    RoutedStream(tmp_path / "home", NAMED, epoch=2)
    with pytest.raises(FencedError):
        one.land(record("b"), batch=1)
    assert not one.catalog.table_exists("events.b") and one.placed() == {"events.a": [0]}


def test_a_driver_that_was_taken_over_makes_no_table_of_a_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: Log = {}
    one = LaneStream(tmp_path / "home", BY_TOPIC, known, monkeypatch, 1)
    one.produce("a", {"id": 1})
    one.land()
    LaneStream(tmp_path / "home", BY_TOPIC, known, monkeypatch, 2)
    one.produce("b", {"id": 1})
    with pytest.raises(FencedError):
        one.land(1)
    assert not one.catalog.table_exists("lake.b") and one.placed() == {"lake.a": [("a", 0, 0)]}


def test_one_that_was_made_in_the_place_of_a_dropped_one_stops_the_stream_which_tells_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, NAMED)
    one.land(record("a"))

    def drop(name: str) -> None:
        if name == "after_anchor_commit":
            one.catalog.rename_table("events.b", "events.elsewhere")

    with monkeypatch.context() as patch:
        patch.setattr(batch_commit, "step", drop)
        with pytest.raises(TableGoneError, match=r"events\.b was dropped"):
            one.land(record("b"), batch=1)
    # What a driver does that slept as it was about to.
    ensure_routed_table(one.spec, one.catalog, "events.b")
    with pytest.raises(TargetRecreatedError, match="which was made for the stream and is empty") as stop:
        targets(one)
    assert "restore the former table in place of this one; or `frazil accept payments --recreated" in str(stop.value)
    one.catalog.drop_table("events.b")
    one.catalog.rename_table("events.elsewhere", "events.b")
    after = RoutedStream(home, NAMED, epoch=2)
    assert after.placed() == {"events.a": [0], "events.b": [1]}, "the pending record has what it lacked"


def test_it_is_taken_where_an_operator_says_so_with_what_comes_from_then_on(tmp_path: Path) -> None:
    home = tmp_path / "home"
    one = RoutedStream(home, NAMED)
    one.land(record("a"), record("b"))
    one.catalog.drop_table("events.b")
    ensure_routed_table(one.spec, one.catalog, "events.b")
    with pytest.raises(TargetRecreatedError, match="any other with records from then on"):
        targets(one)
    given: Any = (one.spec, one.settings, lambda: None, Answer(recreated_table="events.b"), "ada: it was dropped")
    record_answer(*given)
    after = RoutedStream(home, NAMED, epoch=9)
    after.log = list(one.log)
    after.land(record("b", 1), record("a", 1), batch=0)
    assert after.placed() == {"events.a": [0, 3], "events.b": [2]}
    fill_ledger(after.catalog, after.settings, [after.spec])
    found = audit(after.stream.spec.model_copy(), after.settings, after.catalog, full=True)
    assert not found.problems and not found.pending


def test_another_table_is_not_said_to_be_of_the_stream(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", NAMED)
    one.land(record("a"))
    one.catalog.drop_table("events.a")
    one.catalog.create_table("events.a", one.table.schema())
    with pytest.raises(
        TargetRecreatedError, match=r"it is [0-9a-f-]+\); the rows that the stream had landed in it are lost"
    ):
        targets(one)
