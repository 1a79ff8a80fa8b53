"""Tables that follow a stream's own one and are altered by hand, under a driver or between two runs of a batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DoubleType, FloatType, LongType, StringType

from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import RouteAudit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.batch import batch_commit
from jobs.tables.commit.stamp.errors import SchemaChangeError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log
from tests.helpers.stories import Killed, forget_records, killed_at

ROUTE: dict[str, Any] = {
    "by": "type",
    "tables": [{"match": "INS", "table": "lake.inserts"}, {"match": "DEL", "table": "lake.deletes"}],
}
EVENTS = TopicPartition("events", 0)
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    first = [{"id": 1, "type": "INS", "p": {"a": 1}}, {"id": 2, "type": "DEL", "p": {"a": 1}}]
    log: Log = {EVENTS: [json.dumps(each).encode() for each in first]}

    def make(epoch: int = 1, route: dict[str, Any] = ROUTE, **more: Any) -> LaneStream:
        return LaneStream(tmp_path / "home", route, log, monkeypatch, epoch, **more)

    return make


def audited(one: LaneStream) -> RouteAudit:
    fill_ledger(one.catalog, one.settings, [one.spec])
    found = audit(one.stream.spec, one.settings, one.catalog, full=True)
    assert not found.problems and not found.pending, (found.problems, found.pending)
    assert found.route is not None
    return found.route


def without(one: LaneStream, column: str, *tables: str) -> None:
    """Somebody drops a column of tables."""
    for name in tables:
        with one.catalog.load_table(name).update_schema() as change:
            change.delete_column(column)


def values(one: LaneStream, table: str) -> dict[int, Any]:
    return {each["id"]: each["p"] for each in one.catalog.load_table(table).scan().to_arrow().to_pylist()}


def test_a_table_that_is_altered_under_a_driver_gets_back_what_the_batch_at_hand_has(opened: Opened) -> None:
    one = opened()
    one.land()
    without(one, "p", "lake.deletes")
    one.produce("events", {"id": 3, "type": "DEL", "p": {"a": 5}}, {"id": 4, "type": "INS", "p": {"a": 6}})
    one.land(1)
    assert values(one, "lake.deletes")[3] == {"a": 5} and values(one, "lake.inserts")[4] == {"a": 6}
    audited(one)


def half_landed(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> LaneStream:
    """A stream whose newest batch is in its own table alone, with no record of the rest."""
    one = opened()
    one.land()
    one.produce("events", {"id": 3, "type": "DEL", "p": {"a": 5}}, {"id": 4, "type": "DEL", "p": {"a": "x"}})

    with monkeypatch.context() as patch:
        killed_at(patch, batch_commit, "after_anchor_commit")
        with pytest.raises(Killed):
            one.land(1)
    forget_records(one)
    return one


@pytest.mark.parametrize("tables", [("lake.deletes",), (OWN,), (OWN, "lake.inserts", "lake.deletes")])
def test_the_rest_of_a_batch_lands_though_its_column_was_dropped_meanwhile(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, tables: tuple[str, ...]
) -> None:
    without(half_landed(opened, monkeypatch), "p", *tables)
    after = opened(2)
    after.land()
    assert values(after, "lake.deletes")[3] == {"a": 5}
    assert {name: [each[2] for each in places] for name, places in after.placed().items()} == {
        "lake.inserts": [0],
        "lake.deletes": [1, 2],
        DEAD: [3],
    }
    audited(after)


def test_what_cannot_take_the_rest_of_a_batch_is_named(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    one = half_landed(opened, monkeypatch)
    without(one, "p", OWN, "lake.deletes")
    with one.catalog.load_table("lake.deletes").update_schema() as change:
        change.rename_column("id", "p")
    after = opened(2)
    with pytest.raises(SchemaChangeError, match=r"lake\.deletes cannot take .* as they were for a batch") as stopped:
        after.land()
    assert "alter table lake.deletes so that it can" in str(stopped.value)


@pytest.mark.parametrize("renamed", [True, False])
def test_a_new_table_is_made_as_the_rows_at_hand_are(opened: Opened, renamed: bool) -> None:
    """Somebody alters the own table under a driver, whose next batch has a value that names a new table."""
    named = {"by": "type", "to": "lake.{value}"}
    one = opened(1, named)
    one.land()
    if renamed:
        with one.catalog.load_table(OWN).update_schema() as change:
            change.rename_column("p", "q")
    else:
        without(one, "p", OWN)
    one.produce("events", {"id": 3, "type": "NEW", "p": {"a": 5}}, {"id": 4, "type": "INS", "p": {"a": 6}})
    one.land(1)
    assert values(one, "lake.NEW") == {3: {"a": 5}} and values(one, "lake.INS")[4] == {"a": 6}
    assert one.letters() == {}
    after = opened(2, named)
    after.land()
    audited(after)


def test_a_table_that_a_topic_named_and_that_cannot_follow_leaves_a_way_out(opened: Opened) -> None:
    """The topics decided first, and each table has columns of its own; now the row does."""
    one = opened(1, {"by": "topic", "to": "lake.{value}"})
    one.produce("other", {"id": "text", "type": "INS"})
    one.land()
    with one.catalog.load_table(OWN).update_schema() as change:
        change.add_column("id", LongType())
        change.add_column("type", StringType())
    with pytest.raises(SchemaChangeError, match=r"lake\.other cannot take the columns") as stopped:
        opened(2, {"by": "type", "to": "lake.{value}"})
    assert "give route.to another pattern" in str(stopped.value)
    after = opened(3, {"by": "type", "to": "lake.of_{value}"})
    after.produce("events", {"id": 5, "type": "INS"})
    after.land()
    assert after.placed()["lake.of_INS"] == [("events", 0, 2)]


def test_rows_from_before_a_column_that_decides_came_back_are_not_judged(opened: Opened) -> None:
    one = opened()
    one.land()
    assert audited(one).judged == 2
    without(one, "type", "lake.deletes")
    after = opened(2)
    after.produce("events", {"id": 3, "type": "DEL"})
    after.land()
    found = audited(after)
    assert found.judged == 1
    assert [(each.table, each.rows, each.why) for each in found.not_judged] == [
        ("lake.deletes", 2, "the table's column type, which the route needs, is newer than some rows")
    ]


def test_rows_that_a_float_decided_are_not_judged_once_it_is_a_double(opened: Opened) -> None:
    opened(1, {"by": "type", "tables": [{"match": "never", "table": "lake.never"}]})
    decode = {"value": "json", "schema": "table"}
    route = {
        "by": "cast(k as string)",
        "tables": [{"match": "0.1", "table": "lake.tenths"}],
        "unmatched": {"table": OWN},
    }
    one = opened(2)
    with one.catalog.load_table(OWN).update_schema() as change:
        change.add_column("k", FloatType())
    one = opened(3, route, decode=decode)
    one.produce("events", {"id": 3, "k": 0.1})
    one.land()
    assert one.placed()["lake.tenths"] == [("events", 0, 2)] and audited(one).judged == 3
    for name in (OWN, "lake.tenths"):
        with one.catalog.load_table(name).update_schema() as change:
            change.update_column("k", DoubleType())
    after = opened(4, route, decode=decode)
    after.land()
    found = audited(after)
    assert [(each.table, each.rows, each.why) for each in found.not_judged] == [
        ("lake.tenths", 1, "the table's column k, which the route needs, was float and is double")
    ]
