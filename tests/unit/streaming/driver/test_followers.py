"""Tables of a route over columns that no file declares, on real tables: they follow the stream's own one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import DateType, IntegerType, LongType

from jobs.base.errors import FrazilError
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import RouteAudit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.tables import follower_tables, schema_evolution
from jobs.tables.commit.schema.schema_history import schema_history
from jobs.tables.commit.stamp.errors import SchemaChangeError
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log
from tests.helpers.stories import Killed, killed_at

FIXED: dict[str, Any] = {
    "by": "type",
    "tables": [
        {"match": "INS|UPD", "table": "lake.changes", "partition_by": ["bucket(4, id)"]},
        {"match": ["DEL"], "table": "lake.deletes", "columns": ["id", "type", "p.*"]},
        {"match": "UPD", "table": "lake.updates"},
        {"match": "never", "table": "lake.idle"},
    ],
}
NAMED: dict[str, Any] = {"by": "type", "to": "lake.{value}"}
FIRST = [{"id": 1, "type": "INS", "p": {"a": 1}}, {"id": 2, "type": "DEL", "p": {"a": 1}}, {"id": 3, "type": "UPD"}]
EVENTS = TopicPartition("events", 0)
Opened = Callable[..., LaneStream]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    known: Log = {EVENTS: []}

    def make(route: dict[str, Any] = FIXED, epoch: int = 1, log: Log | None = None, **more: Any) -> LaneStream:
        known.update(log or {})
        return LaneStream(tmp_path / "home", route, known, monkeypatch, epoch, **more)

    return make


def begun(opened: Opened, route: dict[str, Any] = FIXED, **more: Any) -> LaneStream:
    """A stream whose first records are there before it opens, landed."""
    one = opened(route, log=logged(*FIRST), **more)
    one.land()
    return one


def logged(*documents: Any) -> Log:
    log: Log = {EVENTS: []}
    LaneStream.produce(_Producer(log), "events", *documents)  # pyright: ignore[reportArgumentType]
    return log


class _Producer:
    def __init__(self, log: Log) -> None:
        self.log: Log = log


def audited(one: LaneStream) -> RouteAudit:
    """The stream adds up, and no row stands where its route does not send it; returns what was judged."""
    fill_ledger(one.catalog, one.settings, [one.spec])
    found = audit(one.stream.spec, one.settings, one.catalog, full=True)
    assert not found.problems and not found.pending, (found.problems, found.pending)
    assert found.route is not None
    return found.route


def offsets(one: LaneStream) -> dict[str, list[int]]:
    return {name: [each[2] for each in places] for name, places in one.placed().items()}


def test_every_table_has_the_columns_of_the_first_records(opened: Opened) -> None:
    one = begun(opened)
    every = {"id": "long", "type": "string", "p": "struct<a long>"}
    assert [one.columns(each) for each in (OWN, "lake.changes", "lake.updates")] == [every, every, every]
    assert one.columns("lake.deletes") == every
    assert offsets(one) == {"lake.changes": [0, 2], "lake.deletes": [1], "lake.updates": [2]}
    assert one.runs == 1 and one.letters() == {}
    assert len(one.catalog.load_table("lake.changes").spec().fields) == 1
    audited(one)


def test_tables_follow_what_the_own_one_gets_within_the_batch(opened: Opened) -> None:
    one = begun(opened)
    one.produce(
        "events",
        {"id": 4, "type": "INS", "note": "x", "p": {"a": 1, "b": True}},
        {"id": 5, "type": "DEL", "p": {"b": False}, "more": [1]},
        {"id": "text", "type": "DEL"},
        {"id": 6, "type": "none", "unrouted": 1.5},
    )
    one.land(1)
    every = {
        "id": "long",
        "type": "string",
        "p": "struct<a long, b boolean>",
        "note": "string",
        "more": "list<long>",
    }
    assert all(one.columns(each) == every for each in (OWN, "lake.changes", "lake.updates", "lake.idle"))
    assert one.columns("lake.deletes") == {"id": "long", "type": "string", "p": "struct<a long, b boolean>"}
    assert offsets(one) == {"lake.changes": [0, 2, 3], "lake.deletes": [1, 4], "lake.updates": [2], DEAD: [5, 6]}
    changed = schema_history(one.catalog.load_table("lake.changes").properties)
    assert len(changed) == 1 and (changed[0].epoch, changed[0].batch) == (1, 1)
    rows = one.catalog.load_table("lake.changes").scan().to_arrow().to_pylist()
    assert [each["note"] for each in sorted(rows, key=lambda row: row["id"])] == [None, None, "x"]
    audited(one)


def test_tables_that_values_name_are_made_as_the_own_one_is_then(opened: Opened) -> None:
    one = begun(opened, NAMED)
    assert offsets(one) == {"lake.INS": [0], "lake.DEL": [1], "lake.UPD": [2]}
    one.produce("events", {"id": 4, "type": "NEW", "n": 1}, {"id": 5, "type": "INS"}, {"id": 6})
    one.land(1)
    every = {"id": "long", "type": "string", "p": "struct<a long>", "n": "long"}
    assert all(one.columns(name) == every for name in ("lake.NEW", "lake.INS", "lake.UPD", OWN))
    assert offsets(one) == {"lake.INS": [0, 4], "lake.DEL": [1], "lake.UPD": [2], "lake.NEW": [3], DEAD: [5]}
    after = opened(NAMED, epoch=2)
    after.produce("events", {"id": 7, "type": "NEW", "n": 2, "last": "x"})
    after.land()
    assert after.columns("lake.DEL") == every | {"last": "string"}
    assert offsets(after)["lake.NEW"] == [3, 6]
    audited(after)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("type", {"lake.INS": [0], "lake.DEL": [1], "lake.UPD": [2]}),
        ("column:id", {"lake.1": [0], "lake.2": [1], "lake.3": [2]}),
        ("p.a", {"lake.1": [0, 1], DEAD: [2]}),
        ("case when id > 1 then 'big' else type end", {"lake.INS": [0], "lake.big": [1, 2]}),
        ("header:kind", {"lake.x": [0], "lake.y": [1], DEAD: [2]}),
        ("concat(_topic, '_', type)", {"lake.events_INS": [0], "lake.events_DEL": [1], "lake.events_UPD": [2]}),
        ("_topic || '_' || substr(cast(now() as string), 1, 4)", None),
    ],
)
@pytest.mark.parametrize("schema", ["infer", "table"])
def test_whatever_of_the_row_decides(
    opened: Opened, by: str, expected: dict[str, list[int]] | None, schema: str
) -> None:
    route = {"by": by, "to": "lake.{value}"}
    log = logged(*FIRST)
    if schema == "table":
        # Somebody has made it.
        opened(NAMED, log=log)
    one = opened(route, 2, log, decode={"value": "json", "schema": schema})
    one.headers = {0: {"kind": b"x"}, 1: {"kind": b"y"}}
    if one.stream.asks_batch_time:
        one.stream.batch_ms = 1_800_000_000_000
    one.land()
    placed = offsets(one)
    assert placed == expected or (expected is None and list(placed.values()) == [[0, 1, 2]])
    rows = sum(len(each) for name, each in placed.items() if name != DEAD)
    # Rows keep neither the headers of their records nor the time of their batch.
    proven = by != "header:kind" and expected is not None
    found = audited(one)
    assert found.judged == (rows if proven else 0) and bool(found.not_judged) != proven


TABLE = {"value": "json", "schema": "table"}


def with_columns(opened: Opened) -> None:
    """The stream's own table as somebody has made it, with columns of types that JSON alone does not give."""
    one = opened({"by": "type", "tables": [{"match": "never", "table": "lake.never"}]}, log=logged(*FIRST))
    with one.catalog.load_table(OWN).update_schema() as change:
        change.add_column("k", IntegerType())
        change.add_column("day", DateType())
        change.add_column("at", LongType())


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("k", {"lake.v7": [0, 2], "lake.v1099511627776": [1]}),
        ("cast(k as string)", {"lake.v7": [0, 2], "lake.v1099511627776": [1]}),
        ("case when k > 7 then 'more' else 'less' end", {"lake.vless": [0, 2], "lake.vmore": [1]}),
        ("replace(cast(day as string), '-', '')", {"lake.v20260131": [0, 1, 2]}),
    ],
)
def test_a_wider_column_routes_as_before(opened: Opened, by: str, expected: dict[str, list[int]]) -> None:
    with_columns(opened)
    log = logged({"k": 7, "day": "2026-01-31"})
    one = opened({"by": by, "to": "lake.v{value}"}, 2, log, decode=TABLE, evolve={"widen": "auto"})
    one.land()
    one.produce("events", {"k": 2**40, "day": "2026-01-31"}, {"k": 7, "day": "2026-01-31"})
    one.land(1)
    assert {one.columns(each)["k"] for each in (OWN, *expected)} == {"long"}
    assert offsets(one) == expected
    assert audited(one).judged == 3


def test_what_another_table_cannot_take_the_own_one_does_not_get(opened: Opened) -> None:
    with_columns(opened)
    route = {"by": "type", "tables": [{"match": "INS", "table": "lake.changes", "partition_by": ["k"]}]}
    log = logged({"type": "INS", "k": 1, "at": 1})
    one = opened(route, 2, log, decode=TABLE, evolve={"widen": "auto", "add": "auto"})
    one.land()
    one.produce("events", {"type": "INS", "k": 2**40}, {"type": "INS", "k": 2, "new": 1})
    one.land(1)
    assert offsets(one) == {"lake.changes": [0, 2], DEAD: [1]}
    assert one.columns(OWN) == one.columns("lake.changes")
    assert (one.columns(OWN)["k"], one.columns(OWN)["new"]) == ("int", "long")
    assert len(one.catalog.load_table("lake.changes").scan(row_filter="new = 1").to_arrow()) == 1
    audited(one)


@pytest.mark.parametrize("route", [FIXED, NAMED], ids=["entries", "to"])
@pytest.mark.parametrize(
    ("name", "nth", "done"),
    [
        ("before_schema_commit", 1, 0),
        ("after_schema_commit", 1, 1),
        ("before_follower_change", 1, 1),
        ("after_follower_change", 1, 2),
        ("before_follower_change", 2, 2),
        ("after_follower_change", 2, 3),
    ],
)
@pytest.mark.parametrize("opens", [True, False])
def test_a_driver_killed_between_two_changes_leaves_what_the_next_one_finishes(
    opened: Opened, monkeypatch: pytest.MonkeyPatch, route: dict[str, Any], name: str, nth: int, done: int, opens: bool
) -> None:
    one = begun(opened, route)
    one.produce("events", {"id": 4, "type": "INS", "p": {"a": 2, "b": 1}}, {"id": 5, "type": "DEL", "p": {"b": 2}})
    with monkeypatch.context() as patch:
        killed_at(patch, (schema_evolution, follower_tables), name, nth)
        with pytest.raises(Killed):
            one.land(1)
    names = [each.name for each in one.stream.spec.targets if each.role == "rows"]
    assert sum("b" in one.columns(each)["p"] for each in names) == done
    after = opened(route, epoch=2) if opens else one
    if opens and done:
        assert all("b" in after.columns(each)["p"] for each in names), "an opening finishes it"
    after.land(2)
    assert all("b" in after.columns(each)["p"] for each in names)
    first, second = ("lake.changes", "lake.deletes") if route is FIXED else ("lake.INS", "lake.DEL")
    assert set(offsets(after)[first]) >= {0, 3} and offsets(after)[second] == [1, 4]
    assert after.letters() == {}
    audited(after)


def test_a_table_that_cannot_follow_stops_the_stream_and_is_named(opened: Opened) -> None:
    one = begun(opened)
    table = one.catalog.load_table("lake.changes")
    with table.update_schema() as change:
        change.rename_column("type", "Type")
    said = r"table lake\.changes cannot take the columns of table lake\.stream: type: the table calls it Type"
    one.stream.targets["lake.changes"].read()
    one.produce("events", {"id": 4, "type": "INS"})
    with pytest.raises(SchemaChangeError, match=said):
        one.land(1)
    with pytest.raises(SchemaChangeError, match=said):
        opened(epoch=2)
    with one.catalog.load_table("lake.changes").update_schema() as change:
        change.rename_column("Type", "type")
    after = opened(epoch=3)
    after.land()
    assert offsets(after) == {"lake.changes": [0, 2, 3], "lake.deletes": [1], "lake.updates": [2]}
    audited(after)


def test_a_table_that_was_altered_by_hand_gets_back_what_it_lacks(opened: Opened) -> None:
    one = begun(opened)
    with one.catalog.load_table("lake.changes").update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("p")
    after = opened(epoch=2)
    after.produce("events", {"id": 4, "type": "INS", "p": {"a": 9}})
    after.land()
    rows = after.catalog.load_table("lake.changes").scan().to_arrow().to_pylist()
    assert sorted((each["id"], each["p"]) for each in rows if each["p"]) == [(4, {"a": 9})]
    audited(after)


def test_an_own_table_that_was_altered_by_hand_is_followed(opened: Opened) -> None:
    decode = {"value": "json", "schema": "table"}
    opened(log=logged(*FIRST))
    one = opened(decode=decode, epoch=2)
    one.land()
    with one.catalog.load_table(OWN).update_schema() as change:
        change.add_column("n", LongType())
    one.produce("events", {"id": 4, "type": "INS", "n": 1})
    one.land(1)
    one.produce("events", {"id": 5, "type": "INS", "n": 2})
    one.land(2)
    after = opened(decode=decode, epoch=3)
    after.produce("events", {"id": 6, "type": "UPD", "n": 3})
    after.land()
    found = {row["id"]: row["n"] for row in after.catalog.load_table("lake.changes").scan().to_arrow().to_pylist()}
    assert found == {1: None, 3: None, 4: found[4], 5: 2, 6: 3}
    audited(after)


@pytest.mark.parametrize(
    ("route", "said"),
    [
        (
            {"by": "kind", "to": "lake.{value}"},
            r"route\.by: no column 'kind' among the stream's columns; did",
        ),
        ({"by": "p", "to": "lake.{value}"}, r"route\.by: cannot be a column of type struct"),
        ({"by": "upper(kind)", "to": "lake.{value}"}, r"route\.by: .*there is no column 'kind'"),
        (
            {"by": "type", "tables": [{"match": "a", "table": "lake.a", "columns": ["nope"]}]},
            r"route\.tables\[0\]\.columns\[0\]: there is no column 'nope'",
        ),
        (
            {"by": "type", "tables": [{"match": "a", "table": "lake.a", "partition_by": ["nope"]}]},
            r"route\.tables\[0\]\.partition_by",
        ),
    ],
)
def test_what_the_file_says_of_columns_that_are_none_is_told_as_they_are_made(
    opened: Opened, route: dict[str, Any], said: str
) -> None:
    with pytest.raises(FrazilError, match=said):
        opened(route, log=logged(*FIRST))
    opened(NAMED, log=logged(*FIRST))
    with pytest.raises(FrazilError, match=said):
        opened(route, epoch=2)


def test_a_stream_whose_topics_decided_needs_an_own_table_with_columns(opened: Opened) -> None:
    opened({"by": "topic", "to": "lake.{value}"}, log=logged(*FIRST)).land()
    with pytest.raises(FrazilError, match=r"route\.by: no column 'type' among the stream's columns"):
        opened(NAMED, epoch=2)
    with pytest.raises(FrazilError, match=r"table lake\.stream has no column but Kafka's own, and the columns of all"):
        opened({"by": "header:kind", "to": "lake.{value}"}, epoch=2)


def test_a_column_that_decides_and_is_taken_away_stops_the_stream(opened: Opened) -> None:
    one = begun(opened, {"by": "type", "to": "lake.{value}"})
    with one.catalog.load_table(OWN).update_schema(allow_incompatible_changes=True) as change:
        change.delete_column("type")
    one.stream.anchor.read()
    one.produce("events", {"id": 4, "type": "INS"})
    with pytest.raises(FrazilError, match=r"route\.by: no column 'type' among the stream's columns"):
        one.land(1)


def test_steps_that_change_columns_are_followed(opened: Opened) -> None:
    route = {"by": "kind", "to": "lake.{value}"}
    transform = [{"rename": {"type": "kind"}}, {"compute": {"twice": "id * 2"}}]
    one = opened(route, log=logged(*FIRST), transform=transform)
    one.land()
    one.produce("events", {"id": 4, "type": "INS", "new": "x"})
    one.land(1)
    assert one.columns("lake.INS") == one.columns(OWN)
    assert set(one.columns(OWN)) == {"id", "kind", "p", "twice", "new"}
    after = opened(route, epoch=2, transform=[*transform, {"compute": {"thrice": "id * 3"}}])
    assert "thrice" in after.columns(OWN) and after.columns("lake.INS") == after.columns(OWN)
    after.produce("events", {"id": 5, "type": "DEL"})
    after.land()
    assert offsets(after) == {"lake.INS": [0, 3], "lake.DEL": [1, 4], "lake.UPD": [2]}
    audited(after)


def test_kept_fields_and_texts_of_clashes_are_in_every_table(opened: Opened) -> None:
    decode = {"value": {"format": "json"}, "schema": "infer", "unknown_fields": "keep"}
    one = begun(opened, NAMED, decode=decode)
    one.produce("events", {"id": 4, "type": "INS", "new": {"x": 1}})
    one.land(1)
    rows = one.catalog.load_table("lake.INS").scan().to_arrow().to_pylist()
    assert [each["_extra"] for each in rows if each["id"] == 4] == ['{"new":{"x":1}}']
    audited(one)


def test_values_that_clash_land_as_text(opened: Opened) -> None:
    one = begun(opened, NAMED, evolve={"clash": "shadow"})
    one.produce("events", {"id": "four", "type": "INS"})
    one.land(1)
    rows = one.catalog.load_table("lake.INS").scan().to_arrow().to_pylist()
    assert [each["id_text"] for each in rows if each["id"] is None] == ['"four"']
    audited(one)


def test_tables_on_branches_follow(opened: Opened) -> None:
    table = {"name": OWN, "branch": "ingest"}
    one = begun(opened, table=table)
    one.produce("events", {"id": 4, "type": "INS", "note": "x"}, {"id": 5, "type": "DEL", "p": {"b": 1}})
    one.land(1)
    assert all("note" in one.columns(each) for each in (OWN, "lake.changes", "lake.idle"))
    found = one.catalog.load_table("lake.changes").scan().use_ref("ingest").to_arrow().to_pylist()
    assert sorted((each["id"], each["note"]) for each in found) == [(1, None), (3, None), (4, "x")]
    assert not len(one.catalog.load_table("lake.changes").scan().to_arrow())
    after = opened(epoch=2, table=table)
    after.produce("events", {"id": 6, "type": "INS", "last": 1})
    after.land()
    assert all("last" in after.columns(each) for each in (OWN, "lake.changes", "lake.idle"))
    audited(after)


def test_late_records_are_told_by_the_own_tables_column(opened: Opened) -> None:
    event_time = {"column": "at", "grace": "1h", "late": "land"}
    decode = {"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"}
    first = [{"id": n, "type": "INS", "at": f"2026-01-0{n}T00:00:00Z"} for n in (1, 2)]
    one = opened(NAMED, log=logged(*first), decode=decode, event_time=event_time)
    one.land()
    one.produce("events", {"id": 3, "type": "NEW", "at": "2026-01-01T00:00:00Z", "more": 1})
    one.land(1)
    assert offsets(one) == {"lake.INS": [0, 1], "lake.NEW": [2]}
    newest = one.stream.anchor.newest
    assert newest is not None and newest.event_time is not None
    audited(one)
