"""Rows of tables that values name, held against their route: each in its own, and with the unmatched before it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobs.commit.offsets import OffsetRange
from jobs.errors import FrazilError
from jobs.verify.audit import audit
from jobs.verify.audit_result import RouteAudit
from jobs.verify.ledger_fill import fill_ledger
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream
from tests.unit.verify.test_routed_rows import audited, keep, misrouted, move, not_judged, rows_of

LATER = "their values name tables now"
NAMED: dict[str, Any] = {"by": "type", "to": "events.{value}", "unmatched": {"table": "events.rest"}}


def record(kind: str | None, number: int = 0) -> dict[str, Any]:
    return {"id": f"{kind}-{number}", "type": kind, "n": number}


def landed(home: Path, *kinds: str | None, route: dict[str, Any] = NAMED, **more: Any) -> RoutedStream:
    one = RoutedStream(home, route, **more)
    one.land(*[record(kind, number) for number, kind in enumerate(kinds)])
    return one


def test_each_row_belongs_in_the_table_of_its_value(tmp_path: Path) -> None:
    one = landed(tmp_path / "home", "a", "b", "a", "not safe", None, "c")
    clean = audited(one)
    assert not clean.problems and clean.route == RouteAudit(6)
    move(one, 0, "events.a", "events.b")
    move(one, 1, "events.b", "events.a")
    assert not audited(one, full=False).problems, "counts say nothing"
    found = audited(one)
    assert misrouted(found) == {"events.a": [(1, 2)], "events.b": [(0, 1)]}
    assert "such as 1, which belongs in events.b" in found.problems[0].sentence
    assert [(each.operation, each.rows) for each in found.problems[0].changes] == [("append", 1)]


def test_what_has_a_table_is_not_with_the_unmatched_and_what_has_none_is_nowhere_else(tmp_path: Path) -> None:
    one = landed(tmp_path / "home", "a", "not safe", "a", None)
    move(one, 0, "events.a", "events.rest")
    move(one, 1, "events.rest", "events.a")
    found = audited(one)
    assert misrouted(found) == {"events.a": [(1, 2)]}
    assert "belongs in events.rest" in found.problems[0].sentence
    assert not_judged(found) == {("events.rest", 1, LATER)}, "it may have had no table when it came"


@pytest.mark.parametrize(
    ("by", "more"),
    [
        ("lower(type)", {}),
        ("header:to", {"kafka_columns": {"headers": "all_headers"}}),
        ("case when _offset % 2 = 0 then 'a' else 'b' end", {}),
    ],
)
def test_names_by_expressions_and_headers_are_proven(tmp_path: Path, by: str, more: dict[str, Any]) -> None:
    one = RoutedStream(tmp_path / "home", {**NAMED, "by": by}, table={"name": SINK, **more})
    one.headers = {n: {"to": b"ab"[n % 2 : n % 2 + 1]} for n in range(4)}
    one.land(*[record("AB"[n % 2], n) for n in range(4)])
    assert one.placed() == {"events.a": [0, 2], "events.b": [1, 3]}
    assert audited(one).route == RouteAudit(4)
    move(one, 0, "events.a", "events.b")
    move(one, 3, "events.b", "events.a")
    assert misrouted(audited(one)) == {"events.a": [(3, 4)], "events.b": [(0, 1)]}


def test_names_by_topic_are_proven(tmp_path: Path) -> None:
    one = landed(tmp_path / "home", "a", "b", route={"by": "topic", "to": "events.{value}"})
    assert one.placed() == {"events.payments": [0, 1]}
    assert audited(one).route == RouteAudit(2)


def test_entries_come_before_names(tmp_path: Path) -> None:
    entries = [{"match": "a|z", "table": "orders.first"}, {"match": "z", "table": "orders.last"}]
    one = landed(tmp_path / "home", "a", "b", "z", "b", route={**NAMED, "tables": entries})
    assert one.placed() == {"orders.first": [0, 2], "orders.last": [2], "events.b": [1, 3]}
    assert audited(one).route == RouteAudit(5)
    move(one, 0, "orders.first", "orders.last")
    assert misrouted(audited(one), alone=False) == {"orders.last": [(0, 1)]}


def test_a_value_that_names_a_table_of_the_file_has_none(tmp_path: Path) -> None:
    route = {"by": "type", "to": "orders.{value}", "unmatched": {"table": "orders.rest"}}
    one = landed(tmp_path / "home", "payments", "rest", "Payments", "a", route=route)
    assert one.placed() == {"orders.rest": [0, 1, 2], "orders.a": [3]}
    assert audited(one).route == RouteAudit(4)
    move(one, 0, "orders.rest", SINK)
    assert misrouted(audited(one), alone=False) == {SINK: [(0, 1)]}


def test_a_value_without_a_table_at_the_time_is_with_the_unmatched_and_later_is_not(tmp_path: Path) -> None:
    """Beyond the limit a value has no table; once the limit is raised it has one, from then on."""
    home = tmp_path / "home"
    few = {**NAMED, "limit": 2}
    first = landed(home, "a", "b", "b", route=few)
    assert first.placed() == {"events.a": [0], "events.rest": [1, 2]}
    assert audited(first).route == RouteAudit(3)
    keep(first)
    second = RoutedStream(home, {**NAMED, "limit": 9}, epoch=2)
    second.log = first.log
    second.land(record("b", 3), record("a", 4), batch=0)
    assert second.placed() == {"events.a": [0, 4], "events.b": [3], "events.rest": [1, 2]}
    clean = audited(second)
    assert not clean.problems and clean.route is not None and clean.route.judged == 3
    assert not_judged(clean) == {("events.rest", 2, LATER)}


def test_a_table_that_a_former_route_named_is_audited_and_judged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = landed(home, "a", "b", "a")
    keep(first)
    # The ledger need not have been filled before the route was taken away.
    plain = RoutedStream(home, None, epoch=2)
    plain.log = first.log
    plain.land(record("a", 3), batch=0)
    assert plain.placed() == {SINK: [3]}
    clean = audited(plain)
    assert not clean.problems and clean.route == RouteAudit(4)
    assert {each.target.name for each in clean.tables} == {
        SINK, f"{SINK}_dead", "events.a", "events.b", "events.rest",
    }  # fmt: skip
    assert sum(part.rows or 0 for each in clean.tables for part in each.partitions if each.target.role == "rows") == 4
    move(plain, 0, "events.a", "events.b")
    move(plain, 1, "events.b", "events.a")
    assert misrouted(audited(plain)) == {"events.a": [(1, 2)], "events.b": [(0, 1)]}
    assert misrouted(audited(plain, table="events.b")) == {"events.b": [(0, 1)]}


def test_a_row_that_is_gone_or_twice_in_a_former_table_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = landed(home, "a", "b", "a")
    keep(first)
    fill_ledger(first.catalog, first.settings, [first.spec])
    other = RoutedStream(home, {**NAMED, "to": "other.{value}"}, epoch=2)
    other.log = first.log
    other.land(record("a", 3), batch=0)
    assert other.placed() == {"other.a": [3]}
    assert not audited(other, full=False).problems
    table = other.catalog.load_table("events.a")
    table.append(rows_of(table, 0))
    other.catalog.load_table("events.b").delete("_kafka_offset = 1")
    found = audited(other)
    assert {(each.kind, each.table, each.where) for each in found.problems} == {
        ("doubled", "events.a", (OffsetRange(0, 1),)), ("missing", "events.b", (OffsetRange(1, 2),)),
    }  # fmt: skip


def test_a_former_table_that_was_dropped_is_nobodys_question(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = landed(home, "a", "b")
    assert not audited(first).problems
    keep(first)
    plain = RoutedStream(home, None, epoch=2)
    plain.log = first.log
    plain.catalog.drop_table("events.a")
    plain.land(record("a", 3), batch=0)
    found = audited(plain)
    assert not found.problems and found.verdict == "complete"
    with pytest.raises(FrazilError, match="is no table of stream payments"):
        audit(plain.spec, plain.settings, plain.catalog, table="events.a")


def test_where_what_decides_is_not_kept_named_tables_are_not_judged(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {**NAMED, "by": "header:to"})
    one.headers = {0: {"to": b"a"}, 1: {"to": b"b"}}
    one.land(record("x"), record("y"))
    assert one.placed() == {"events.a": [0], "events.b": [1]}
    found = audited(one)
    assert not found.problems
    why = "the table does not keep what they are routed by"
    assert not_judged(found) == {("events.a", 1, why), ("events.b", 1, why)}
    # The stream's own table has no row of it in any case.
    move(one, 0, "events.a", SINK)
    assert misrouted(audited(one), alone=False) == {SINK: [(0, 1)]}
