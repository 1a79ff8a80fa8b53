"""Rows that stand in another table than their route names: put there by hand, with every count as it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from pyiceberg.expressions import EqualTo
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.clients.state_store.epochs import keep_file
from jobs.clients.state_store.stream_folder import stream_folder
from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import (
    NotJudged,
    RouteAudit,
    StreamAudit,
    not_judged_sentence,
)
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.audit.routed_rows import ReadConfigurations
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.dead_letter_table.table import ensure_replay_state_columns
from jobs.tables.ledger.ledger_row import LedgerRow
from orchestration.cli.tables.audit import audit_facts, print_audit
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream

P = TopicPartition("payments", 0)
KINDS = ["INS", "UPD", "DEL", "OWN", "other", None]
DOCUMENTS: list[dict[str, Any]] = [
    {"id": f"a{number}", "type": KINDS[number % len(KINDS)], "n": number} for number in range(12)
]


def audited(one: RoutedStream, **more: Any) -> StreamAudit:
    fill_ledger(one.catalog, one.settings, [one.spec])
    return audit(one.spec, one.settings, one.catalog, **{"full": True, **more})


def misrouted(found: StreamAudit, *, alone: bool = True) -> dict[str, list[tuple[int, int]]]:
    """Where rows stand that their routes do not send there; nothing else is wrong, if that alone should be."""
    problems = [each for each in found.problems if each.kind == "misrouted"]
    assert len(problems) == len(found.problems) or not alone, found.problems
    assert all(problem.partition == P and problem.exact for problem in problems)
    return {problem.table: [(start, end) for start, end in problem.where] for problem in problems}


def batch_row(start: int, end: int, config: str, *, sequence: int, partition: TopicPartition = P) -> LedgerRow:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    names = ("payments", SINK, "uuid", True, "batch", partition, OffsetRange(start, end))
    return LedgerRow(*names, 1, sequence, sequence, sequence, at, config)


def rows_of(table: Table, offset: int) -> pa.Table:
    return table.scan(row_filter=EqualTo("_kafka_offset", offset)).to_arrow()  # pyright: ignore[reportCallIssue]


def move(one: RoutedStream, offset: int, source: str, target: str) -> None:
    """Take a row out of a table and put it into another, as somebody with a SQL shell would."""
    first, second = one.catalog.load_table(source), one.catalog.load_table(target)
    row = rows_of(first, offset)
    assert row.num_rows == 1
    second.append(row)
    first.delete(EqualTo("_kafka_offset", offset))  # pyright: ignore[reportCallIssue]


def swapped(one: RoutedStream) -> None:
    """An INS in the table of the deletes, and a DEL in that of the changes."""
    move(one, 0, "orders.changes", "orders.deletes")
    move(one, 2, "orders.deletes", "orders.changes")


def test_rows_that_changed_places_are_found_where_counts_are_as_they_were(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS)
    clean = audited(one)
    assert not clean.problems and clean.route == RouteAudit(10)
    swapped(one)
    assert not audited(one, full=False).problems, "counts say nothing"
    found = audited(one)
    assert misrouted(found) == {"orders.changes": [(2, 3)], "orders.deletes": [(0, 1)]}
    first, second = found.problems
    assert "such as 2, which belongs in orders.deletes" in first.sentence
    assert "such as 0, which belongs in orders.changes" in second.sentence
    assert (first.records, first.range, found.verdict) == (1, OffsetRange(2, 3), "incomplete")
    assert (found.missing, found.doubled) == (0, 0), "as many rows as there should be"
    # Who put them there is said, as of other rows.
    assert [(change.operation, change.rows) for change in first.changes] == [("append", 1)]
    assert found.route == RouteAudit(10)


def test_one_table_alone_is_judged_too(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS)
    swapped(one)
    assert misrouted(audited(one, table="orders.deletes")) == {"orders.deletes": [(0, 1)]}
    assert misrouted(audited(one, table=SINK)) == {}


def test_a_row_in_the_streams_own_table_that_a_route_sends_elsewhere(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS)
    move(one, 0, "orders.changes", SINK)
    move(one, 3, SINK, "orders.changes")
    assert misrouted(audited(one)) == {SINK: [(0, 1)], "orders.changes": [(3, 4)]}


def test_many_rows_are_told_as_ranges(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {**ROUTE, "unmatched": {"table": SINK}})
    one.land(*[{"id": str(n), "type": "INS" if n % 2 else "DEL", "n": n} for n in range(10)])
    changes, deletes = (one.catalog.load_table(f"orders.{name}") for name in ("changes", "deletes"))
    inserted, deleted = changes.scan().to_arrow(), deletes.scan().to_arrow()
    changes.overwrite(deleted)
    deletes.overwrite(inserted)
    found = audited(one)
    kept = {
        problem.table: (problem.records, problem.where) for problem in found.problems if problem.kind == "misrouted"
    }
    assert kept == {
        "orders.changes": (5, tuple(OffsetRange(n, n + 1) for n in range(0, 10, 2))),
        "orders.deletes": (5, tuple(OffsetRange(n, n + 1) for n in range(1, 10, 2))),
    }


@pytest.mark.parametrize(
    ("by", "table"),
    [
        ("sql: upper(type)", {}),
        ("sql: CASE WHEN n % 2 = 0 THEN 'INS' ELSE 'DEL' END", {}),
        ("n", {}),
        ("header:to", {"kafka_columns": {"headers": "all_headers"}}),
        ("sql: CASE WHEN _offset % 2 = 0 THEN 'INS' ELSE 'DEL' END", {}),
    ],
)
def test_routes_by_expressions_headers_and_numbers_are_proven(tmp_path: Path, by: str, table: Any) -> None:
    tables = [{"match": "INS|[02468]", "table": "orders.a"}, {"match": "DEL|[13579]", "table": "orders.b"}]
    route = {"by": by, "tables": tables, "unmatched": {"table": SINK}}
    one = RoutedStream(tmp_path / "home", route, table={"name": SINK, **table})
    one.headers = {n: {"to": b"DEL" if n % 2 else b"INS"} for n in range(6)}
    one.land(*[{"id": str(n), "type": "ins" if n % 2 == 0 else "del", "n": n} for n in range(6)])
    found = audited(one)
    assert not found.problems and found.route == RouteAudit(6)
    assert one.placed() == {"orders.a": [0, 2, 4], "orders.b": [1, 3, 5]}
    move(one, 0, "orders.a", "orders.b")
    move(one, 1, "orders.b", "orders.a")
    assert misrouted(audited(one)) == {"orders.a": [(1, 2)], "orders.b": [(0, 1)]}


def test_a_route_by_topic_is_proven_by_the_topic_that_the_rows_keep(tmp_path: Path) -> None:
    by_topic = {
        "by": "topic",
        "tables": [{"match": "pay.*", "table": "orders.pay"}, {"match": "x", "table": "orders.x"}],
    }
    one = RoutedStream(tmp_path / "home", by_topic)
    one.land(*DOCUMENTS[:4])
    assert not audited(one).problems
    move(one, 1, "orders.pay", "orders.x")
    found = audited(one)
    assert misrouted(found, alone=False) == {"orders.x": [(1, 2)]}
    assert "belongs in orders.pay" in next(each.sentence for each in found.problems if each.kind == "misrouted")


def not_judged(found: StreamAudit) -> set[tuple[str, int, str]]:
    assert found.route is not None
    return {(each.table, each.rows, each.why.partition(":")[0].partition(",")[0]) for each in found.route.not_judged}


def test_what_the_table_does_not_keep_is_not_provable(tmp_path: Path) -> None:
    route = {"by": "header:to", "tables": [{"match": "x", "table": "orders.x"}], "unmatched": {"table": SINK}}
    one = RoutedStream(tmp_path / "home", route)
    one.land(*DOCUMENTS[:5])
    found = audited(one)
    assert not found.problems and found.route is not None and found.route.judged == 0
    assert not_judged(found) == {(SINK, 5, "the table does not keep what the route needs")}
    assert found.verdict == "complete"


def test_topics_that_a_transform_may_have_changed_are_not_provable(tmp_path: Path) -> None:
    smt = {"smt": {"type": "RegexRouter", "regex": "pay(.*)", "replacement": "other"}}
    route = {"by": "topic", "tables": [{"match": "other", "table": "orders.other"}], "unmatched": {"table": SINK}}
    one = RoutedStream(tmp_path / "home", route, transform=[smt])
    one.land(*DOCUMENTS[:3])
    assert one.placed() == {"orders.other": [0, 1, 2]}
    found = audited(one)
    assert not found.problems
    assert not_judged(found) == {
        ("orders.other", 3, "a transform may have given their records another topic than the rows keep")
    }


def test_a_column_that_is_gone_is_not_provable(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS)
    with one.catalog.load_table("orders.deletes").update_schema() as change:
        change.rename_column("type", "kind")
    found = audited(one)
    assert not found.problems
    assert not_judged(found) == {("orders.deletes", 4, "the table has no column type")}


def test_tables_without_coordinates_are_not_judged(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE, table={"name": SINK, "kafka_columns": False})
    one.land(*DOCUMENTS)
    found = audited(one)
    assert {(table, rows) for table, rows, _ in not_judged(found)} == {
        (SINK, 2), ("orders.changes", 4), ("orders.deletes", 4),
    }  # fmt: skip


def keep(one: RoutedStream, spec: StreamSpec | None = None) -> None:
    """As each opening of the stream does."""
    said = (spec or one.spec).model_dump(mode="json", by_alias=True, exclude_unset=True)
    keep_file(stream_folder(one.settings, "payments").store, one.spec.config_hash, "", yaml.safe_dump(said))


def test_rows_are_judged_by_the_route_that_they_were_landed_by(tmp_path: Path) -> None:
    home = tmp_path / "home"
    plain = RoutedStream(home)
    plain.land(*DOCUMENTS[:4])
    keep(plain)
    first = RoutedStream(home, ROUTE, epoch=2)
    first.log = plain.log
    first.land(*DOCUMENTS[4:8], batch=1)
    keep(first)
    other = {**ROUTE, "tables": [*ROUTE["tables"][1:], {"match": "INS", "table": "orders.deletes"}]}
    other["tables"].append({"match": "never", "table": "orders.changes"})
    second = RoutedStream(home, other, epoch=3)
    second.log = first.log
    second.land(*DOCUMENTS[8:], batch=2)
    found = audited(second)
    assert not found.problems and found.route is not None and found.route.not_judged == ()
    # An INS of the first route in a table where the second one would send it.
    move(second, 6, "orders.changes", "orders.deletes")
    move(second, 8, "orders.deletes", "orders.changes")
    assert misrouted(audited(second), alone=False) == {"orders.changes": [(8, 9)], "orders.deletes": [(6, 7)]}
    # Rows of the time without a route belong in the stream's own table only.
    move(second, 1, SINK, "orders.deletes")
    assert misrouted(audited(second), alone=False)["orders.deletes"] == [(1, 2), (6, 7)]


def test_a_configuration_that_is_not_kept_leaves_its_rows_out(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = RoutedStream(home, ROUTE)
    first.land(*DOCUMENTS[:6])
    second = RoutedStream(home, {**ROUTE, "unmatched": {"table": SINK}}, epoch=2)
    second.log = first.log
    second.land(*DOCUMENTS[6:], batch=1)
    found = audited(second)
    assert not found.problems and found.route is not None
    assert {(each.table, each.config, each.rows) for each in found.route.not_judged} == {
        (SINK, first.spec.config_hash, 1),
        ("orders.changes", first.spec.config_hash, 2),
        ("orders.deletes", first.spec.config_hash, 2),
    }
    assert found.route.judged == 7
    assert {each.why for each in found.route.not_judged} == {"the stream's file as it was then is not kept"}
    # A file that says something else by now, and one that nobody reads.
    store = stream_folder(first.settings, "payments").store
    for text, why in (
        (
            yaml.safe_dump(second.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)),
            "means something else",
        ),
        ("stream: [", "does not read"),
        ("stream: payments\n", "does not read"),
    ):
        keep_file(store, first.spec.config_hash, "", text)
        route = audited(second).route
        assert route is not None and all(why in each.why for each in route.not_judged)


def test_letters_that_came_back_are_not_judged(tmp_path: Path) -> None:
    """Replays of a time without a route put rows into the main table, whatever route had read their records."""
    one = RoutedStream(tmp_path / "home", ROUTE)
    one.land(*DOCUMENTS[:4], b'{"id": "late", "type": "INS", "n": "five"}', b'{"id": 5, "type": "DEL"}')
    assert set(one.letters) == {4, 5}
    letters = ensure_replay_state_columns(one.catalog, one.spec.dead_letter_table)
    rows = letters.scan().to_arrow()
    first = [offset == 4 for offset in rows.column("offset").to_pylist()]
    state = pa.array(["replayed" if each else None for each in first], rows.schema.field("state").type)
    letters.overwrite(rows.set_column(rows.schema.get_field_index("state"), "state", state))
    sink = one.catalog.load_table(SINK)
    row = rows_of(sink, 3)
    for offset, kind in ((4, "INS"), (5, "DEL")):
        made = row.set_column(
            row.schema.get_field_index("_kafka_offset"), "_kafka_offset", pa.array([offset], pa.int64())
        )
        sink.append(
            made.set_column(row.schema.get_field_index("type"), "type", pa.array([kind], row.schema.field("type").type))
        )
        sink = one.catalog.load_table(SINK)
    found = audited(one)
    # The one that came back may be there; the other one never did.
    assert misrouted(found, alone=False) == {SINK: [(5, 6)]}
    assert not_judged(found) == {(SINK, 1, "their dead letters came back")}


def test_a_stream_that_never_had_a_route_is_not_read_twice(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home")
    one.land(*DOCUMENTS)
    found = audited(one)
    assert (found.problems, found.route, found.scanned) == ([], None, 12)


def test_the_audit_tells_of_it_in_words_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    route = {"by": "header:to", "tables": [{"match": "x", "table": "orders.x"}], "unmatched": {"table": SINK}}
    one = RoutedStream(tmp_path / "home", route)
    one.land(*DOCUMENTS[:5])
    facts = json.loads(json.dumps(audit_facts(audited(one)), default=str))
    assert facts["route"] == {
        "judged": 0,
        "not_judged": [
            {
                "table": SINK,
                "config": one.spec.config_hash,
                "rows": 5,
                "why": "the table does not keep what the route needs: the record's headers",
            }
        ],
    }
    print_audit(audited(one))
    assert "it is not judged whether the route sends them there: the table does not keep" in capsys.readouterr().out
    assert not_judged_sentence(NotJudged("t", None, "why", 1)) == (
        "t: of 1 row it is not judged whether the route sends them there: why"
    )


def test_offsets_know_the_configurations_that_read_them() -> None:
    read = ReadConfigurations(
        [
            batch_row(0, 10, "a", sequence=1),
            batch_row(10, 20, "b", sequence=2),
            batch_row(5, 15, "c", sequence=3),
            batch_row(30, 40, "a", sequence=4),
            batch_row(2, 4, "z", sequence=5, partition=TopicPartition("payments", 1)),
        ]
    )
    assert read.configs == ("a", "b", "c", "z")

    def of(place: TopicPartition, *offsets: int) -> dict[int, frozenset[str]]:
        at = np.array(offsets, np.int64)
        return {int(at[row]): configs for configs, rows in read.of(place, at) for row in rows}

    assert of(P, 0, 4, 5, 9, 10, 14, 15, 19, 20, 29, 30, 39, 40, 99) == {
        0: {"a"}, 4: {"a"}, 5: {"a", "c"}, 9: {"a", "c"}, 10: {"b", "c"}, 14: {"b", "c"}, 15: {"b"}, 19: {"b"},
        30: {"a"}, 39: {"a"},
    }  # fmt: skip
    assert of(TopicPartition("payments", 1), 1, 2, 3, 4) == {2: {"z"}, 3: {"z"}}
    assert of(TopicPartition("other", 0), 1) == {}


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
    why = "the table does not keep what the route needs"
    assert not_judged(found) == {("events.a", 1, why), ("events.b", 1, why)}
    # The stream's own table has no row of it in any case.
    move(one, 0, "events.a", SINK)
    assert misrouted(audited(one), alone=False) == {SINK: [(0, 1)]}
