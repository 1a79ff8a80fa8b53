"""Previews against what a task of the driver makes of the same records; and what becomes of each record."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from jobs.base.errors import FrazilError
from jobs.records.schema.needs import Coordinates
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.preview.record import PartitionValue
from jobs.streaming.preview.tables import tables_as_written
from jobs.tables.dead_letter_table.masking import MARK
from tests.helpers.evolving_stream import SINK, EvolvingStream
from tests.helpers.tasks import TaskWorld
from tests.unit.streaming.preview.previews import (
    at,
    block_of,
    no_new_columns,
    previewed,
    record,
    spec_of,
)

STEPS: list[Any] = [
    {"cast": {"amount": "decimal(12,2)"}},
    {"compute": {"twice": "amount * 2"}},
    {"where": "kind <> 'ignored'"},
    {"rename": {"kind": "type"}},
]
RULES: list[Any] = [
    {"name": "positive", "expect": "amount > 0"},
    {"name": "small", "expect": "amount < 100", "severity": "warn"},
]
VALUES: list[Any] = [
    {"id": "a", "kind": "sale", "amount": "1.50"},
    {"id": "b", "kind": "sale", "amount": "-566,000"},
    {"id": "c", "kind": "ignored", "amount": "2"},
    {"id": "d", "kind": "sale", "amount": "-5"},
    {"id": "e", "kind": "sale", "amount": "250"},
    None,
    b"no json",
    {"kind": "sale", "amount": "1", "more": 1},
    {"id": "g", "kind": "sale", "amount": "9", "more": 1},
]


def catalog_in(folder: Path) -> SqlCatalog:
    return SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")


def test_each_record_has_its_outcome_and_its_row_on_both_sides() -> None:
    found = previewed(spec_of(transform=STEPS, rules=RULES), VALUES)
    assert [each.outcome for each in found.records.values()] == [
        "landed", "dead", "filtered", "dead", "landed", "tombstone", "dead", "dead", "landed",
    ]  # fmt: skip
    assert (found.read, found.count("landed"), found.count("dead"), found.count("filtered")) == (9, 3, 4, 1)
    assert record(found, 0).decoded == {"id": "a", "kind": "sale", "amount": "1.50", "card": None}
    landed = record(found, 0).rows["orders.payments"]
    assert {name: str(landed[name]) for name in ("id", "type", "amount", "twice", "_kafka_offset")} == {
        "id": "a", "type": "sale", "amount": "1.50", "twice": "3.00", "_kafka_offset": "0",
    }  # fmt: skip
    assert "kind" not in landed
    filtered = record(found, 2)
    assert filtered.decoded is not None and filtered.decoded["id"] == "c" and filtered.rows == {}
    assert (record(found, 5).decoded, record(found, 6).decoded) == (None, None)
    assert record(found, 4).warned == ("small",) and found.warned == {"small": 1}
    assert found.left_out == {"$.more": 1}
    letters = {each.at.offset: each.letter for each in found.records.values() if each.letter}
    assert {offset: (each.error_class, each.stage) for offset, each in letters.items()} == {
        1: ("wrong_type", "transform[0].cast"),
        3: ("rule_violated", "rules[0].positive"),
        6: ("malformed_json", "decode_value"),
        7: ("missing_field", "decode_value"),
    }
    assert letters[1].value is not None and '"-566,000"' in letters[1].value
    assert letters[1].row_before is not None and '"-566,000"' in letters[1].row_before
    assert letters[6].value == "no json"


def test_rows_have_the_names_of_columns_and_not_those_of_files() -> None:
    columns = "`a.b` string, `1x` struct<`c d` int, l list<struct<`e-f` int>>, m map<string, struct<`😎` int>>>"
    value = {"a.b": "secret", "1x": {"c d": 1, "l": [{"e-f": 2}, None], "m": {"k": {"😎": 3}}}}
    spec = spec_of(
        decode={"value": "json", "schema": columns}, errors={"dead_letters": {"mask": {"columns": ["`a.b`"]}}}
    )
    found = previewed(spec, [value], mask=spec.errors.mask)
    row = record(found, 0).rows["orders.payments"]
    inner = {"c d": 1, "l": [{"e-f": 2}, None], "m": [("k", {"😎": 3})]}
    assert {name: row[name] for name in ("a.b", "1x")} == {"a.b": "secret", "1x": inner}
    assert found.hiding("orders.payments").shown(row)["a.b"] == MARK


def test_a_preview_says_what_the_task_of_a_driver_does(tmp_path: Path) -> None:
    spec = spec_of(table={"partition_by": ["bucket(3, id)"]})
    values: list[Any] = [{"id": f"r{n}", "kind": "x" * n} for n in range(40)] + [None, b"x", {"kind": "no id"}]
    world = TaskWorld(tmp_path, spec)
    done = world.run(block_of(values).whole(range(len(values))))
    world.close()
    found = previewed(spec, values)
    rows = [each.rows["orders.payments"] for each in found.records.values() if each.rows]
    assert sorted(rows, key=lambda row: row["_kafka_offset"]) == sorted(done.rows, key=lambda row: row["_kafka_offset"])
    assert {each.at.offset for each in found.records.values() if each.letter} == set(done.letters)
    own, dead = found.tables
    assert (own.rows, own.files) == (len(done.rows), len(done.files))
    assert sorted((each.rows, each.files) for each in own.partitions) == sorted(
        (file.record_count, 1) for file in done.files
    )
    # Names of files are in them, and no byte besides differs.
    assert own.bytes == sum(file.file_size_in_bytes for file in done.files)
    assert (dead.rows, dead.role, dead.files) == (2, "dead_letters", 1)


def test_partitions_are_named_as_people_write_them() -> None:
    spec = spec_of(
        "id string not null, at timestamptz, day date, n int",
        table={"partition_by": ["day(at)", "truncate(2, id)", "day", "n"]},
    )
    found = previewed(
        spec,
        [
            {"id": "abc", "at": "2026-03-01T23:00:00Z", "day": "2026-03-02", "n": 5},
            {"id": "abd", "at": "2026-03-01T01:00:00Z", "day": "2026-03-02", "n": 5},
            {"id": "x"},
        ],
    )
    assert [(each.values, each.rows) for each in found.tables[0].partitions] == [
        (
            (
                PartitionValue("at_day", "at", "2026-03-01"),
                PartitionValue("id_trunc", "id", "ab"),
                PartitionValue("day", "day", "2026-03-02"),
                PartitionValue("n", "n", "5"),
            ),
            2,
        ),
        (
            (
                PartitionValue("at_day", "at", "null"),
                PartitionValue("id_trunc", "id", "x"),
                PartitionValue("day", "day", "null"),
                PartitionValue("n", "n", "null"),
            ),
            1,
        ),
    ]


def test_rows_of_a_route_are_in_each_of_their_tables() -> None:
    route = {
        "by": "kind",
        "tables": [
            {"match": "INS|UPD", "table": "orders.changes", "partition_by": ["bucket(2, id)"]},
            {"match": ["UPD"], "table": "orders.updates"},
        ],
    }
    found = previewed(
        spec_of(route=route), [{"id": str(n), "kind": kind} for n, kind in enumerate(["INS", "UPD", "?"])]
    )
    assert [sorted(each.rows) for each in found.records.values()] == [
        ["orders.changes"],
        ["orders.changes", "orders.updates"],
        [],
    ]
    assert {each.name: each.rows for each in found.tables} == {
        "orders.payments": 0, "orders.payments_dead": 1, "orders.changes": 2, "orders.updates": 1,
    }  # fmt: skip
    letter = record(found, 2).letter
    assert letter is not None and (letter.error_class, letter.stage) == ("unrouted", "route")


def test_blocks_of_several_partitions_keep_their_coordinates_and_topics_that_are_not_read_are_told() -> None:
    spec = spec_of()
    found = previewed(
        spec,
        block_of([{"id": "a"}, b"x"], partition=1, first=100),
        block_of([{"id": "b"}], partition=0, first=7),
        block_of([{"id": "c"}], topic="others"),
    )
    assert {each: one.outcome for each, one in found.records.items()} == {
        Coordinates("others", 0, 0): "not_read",
        at(7): "landed",
        at(100, 1): "landed",
        at(101, 1): "dead",
    }
    assert record(found, 7).rows["orders.payments"]["id"] == "b"
    letter = record(found, 101, 1).letter
    assert letter is not None and letter.value == "x"
    assert found.read == 3


def test_no_records_are_a_preview_too() -> None:
    found = previewed(spec_of())
    assert (found.records, [each.rows for each in found.tables]) == ({}, [0, 0])
    assert [each.state for each in found.tables] == ["new", "new"]


def test_keys_headers_and_kafkas_columns_are_fetched_for_the_file_that_asks() -> None:
    decode = {"key": {"format": "string", "into": "the_key"}, "headers": {"trace": {"type": "string", "header": "t"}}}
    spec = spec_of(decode=decode, table={"kafka_columns": {"key": "raw_key", "timestamp_type": "sent"}})
    row = record(previewed(spec, block_of([{"id": "a"}], headers=[("t", b"7")])), 0).rows["orders.payments"]
    assert (row["the_key"], row["trace"], row["raw_key"], row["sent"]) == ("k0", "7", b"k0", "CreateTime")


CHANGING: list[Any] = [
    {"id": "a", "colour": "red", "deep": {"x": [1, 2]}},
    {"id": "b", "n": 2**40, "size": 3},
    {"n": 1, "size": 2.5},
    {"id": "d", "n": "five"},
    {"id": 5, "colour": "blue"},
]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"add": "auto", "widen": "auto", "relax": "auto"},
        {"add": "propose"},
        {"add": "ignore", "widen": "ignore", "relax": "propose"},
        {"clash": "shadow"},
        {"clash": "shadow", "widen": "propose"},
        {"limits": {"new_columns_per_hour": 1}},
        {"limits": {"depth": 1}},
        {"decode": {"unknown_fields": "keep"}},
        {"decode": {"unknown_fields": "fail"}, "add": "ignore"},
        {"more": {"transform": [{"rename": {"n": "number"}}, {"compute": {"twice": "number * 2"}}]}},
        {"more": {"transform": [{"cast": {"n": "string"}}, {"drop": "id"}]}, "widen": "propose"},
    ],
)
def test_the_table_changes_as_its_driver_would_change_it(tmp_path: Path, more: dict[str, Any]) -> None:
    one = EvolvingStream(tmp_path, columns="id string not null, n int", **more)
    found = previewed(one.spec, CHANGING, catalog=one.catalog)
    one.land(*CHANGING)
    own = next(each for each in found.tables if each.name == SINK)
    assert {each.name: str(each.field_type) for each in own.schema.fields if each.name[:6] != "_kafka"} == one.columns
    assert {each.at.offset: each.letter.error_class for each in found.records.values() if each.letter} == one.letters
    shown = [
        {name: value for name, value in each.rows[SINK].items() if value is not None and name[:6] != "_kafka"}
        for each in found.records.values()
        if each.rows
    ]
    assert shown == one.rows
    assert found.changes.made == tuple(change for record in one.history for change in record.changes)


@pytest.mark.parametrize(
    ("evolve", "kind", "said"),
    [
        ({"add": "propose"}, "proposed", ["add column colour string"]),
        ({"add": "fail"}, "failed", ["add column colour string"]),
        ({"limits": {"columns": 1}}, "refused", ["add colour: the table would have more than 1 columns"]),
    ],
)
def test_changes_that_are_not_made_are_told(tmp_path: Path, evolve: Any, kind: str, said: list[str]) -> None:
    one = EvolvingStream(tmp_path, **evolve)
    found = previewed(one.spec, [{"id": "a", "colour": "red"}, {"id": "b"}], catalog=one.catalog)
    assert found.changes.made == ()
    assert list(getattr(found.changes, kind)) == said
    assert one.columns == {"id": "string", "n": "int"}


def files_in(folder: Path) -> dict[Path, int]:
    return {each: each.stat().st_mtime_ns for each in folder.rglob("*") if each.is_file()}


def test_the_tables_that_are_there_are_read_and_left_alone(tmp_path: Path) -> None:
    spec, catalog = spec_of(table={"partition_by": ["kind"]}), catalog_in(tmp_path)
    ensure_tables(spec, catalog)
    before = files_in(tmp_path)
    other = spec_of(table={"partition_by": []})
    found = previewed(other, [{"id": "a", "kind": "x"}], catalog=catalog)
    # As frazil made it and without rows, it is made anew by the next start.
    assert [each.state for each in found.tables] == ["there", "there"]
    assert found.tables[0].partitions[0].values == ()
    found = previewed(spec, [{"id": "a", "kind": "x"}], catalog=catalog)
    assert found.tables[0].partitions[0].values == (PartitionValue("kind", "kind", "x"),)
    assert files_in(tmp_path) == before
    catalog.close()


def test_a_table_with_other_columns_is_told_and_the_rows_are_shown_as_declared(tmp_path: Path) -> None:
    spec, catalog = spec_of(), catalog_in(tmp_path)
    ensure_tables(spec, catalog)
    table = catalog.load_table("orders.payments")
    with table.transaction() as change:
        change.set_properties({"owner": "somebody"})
        change.remove_properties("frazil.as-made")
    wider = spec_of("id string not null, kind string, amount string, card string, more int")
    found = previewed(wider, [{"id": "a", "more": 5}], catalog=catalog)
    own = found.tables[0]
    assert own.state == "differs" and own.problem is not None and "more" in own.problem
    assert found.notes == (f"A driver with this file would not start: {own.problem}.",)
    assert record(found, 0).rows["orders.payments"]["more"] == 5
    # A table with more columns than the file declares holds its rows.
    narrower = spec_of("id string not null")
    found = previewed(narrower, [{"id": "a"}], catalog=catalog)
    assert found.tables[0].state == "there"
    assert record(found, 0).rows["orders.payments"]["card"] is None
    catalog.close()


def test_columns_that_the_file_leaves_to_its_table_are_those_of_the_table(tmp_path: Path) -> None:
    catalog = catalog_in(tmp_path)
    ensure_tables(spec_of("id string not null, n int"), catalog)
    of_table = spec_of("table")
    found = previewed(of_table, [{"id": "a", "n": 5}], catalog=catalog)
    assert record(found, 0).rows["orders.payments"]["n"] == 5
    catalog.close()


def test_columns_that_nobody_knows_yet_are_asked_for_once_or_refused() -> None:
    made = spec_of("id string not null, n int").declared_rows
    inferred = spec_of("infer")
    own, _ = tables_as_written(inferred, None, lambda: NewColumns(made))
    assert own.metadata.schema().column_names[:2] == ["id", "n"]

    def awaited() -> NewColumns:
        raise FrazilError("no record is there")

    with pytest.raises(FrazilError, match="no record"):
        tables_as_written(inferred, None, awaited)


def test_a_table_that_cannot_be_made_is_refused() -> None:
    spec = spec_of(table={"properties": {"format-version": "3"}})
    with pytest.raises(FrazilError, match="format-version 3"):
        tables_as_written(spec, None, no_new_columns)


def test_which_records_are_late_is_not_judged() -> None:
    spec = spec_of(
        "id string not null, at timestamptz", event_time={"column": "at", "grace": "1h", "late": "dead_letter"}
    )
    found = previewed(spec, [{"id": "a", "at": "1990-01-01T00:00:00Z"}, {"id": "b", "at": "2026-01-01T00:00:00Z"}])
    assert found.count("landed") == 2
    assert "too late" in found.notes[0]


@pytest.mark.parametrize(
    ("by", "tables"),
    [("sql: upper(kind)", ["orders.a", None, None]), ("header:to", ["orders.a", "orders.a", "orders.a"])],
)
def test_a_route_by_an_expression_or_a_header_drops_what_no_table_takes(by: str, tables: list[str | None]) -> None:
    route = {"by": by, "tables": [{"match": "INS", "table": "orders.a"}], "unmatched": "drop"}
    block = block_of([{"id": "a", "kind": "ins"}, {"id": "b", "kind": "?"}, {"id": "c"}], headers=[("to", b"INS")])
    found = previewed(spec_of(route=route), block)
    assert [next(iter(each.rows), None) for each in found.records.values()] == tables
    assert found.count("filtered") == tables.count(None)


def test_tables_that_values_name_are_shown_as_they_would_be_made() -> None:
    route = {"by": "kind", "to": "events.{value}", "limit": 2}
    kinds = ["b", "a", "b", "B", None, "c"]
    found = previewed(spec_of(route=route), [{"id": f"i{n}", "kind": kind} for n, kind in enumerate(kinds)])
    made = {each.name: each.rows for each in found.tables if each.role == "rows"}
    assert made == {"orders.payments": 0, "events.b": 2, "events.a": 1}
    letters = [record(found, offset).letter for offset in (3, 4, 5)]
    assert all(each is not None and each.error_class == "unrouted" for each in letters)


def test_now_is_the_time_of_the_preview() -> None:
    before = datetime.now(UTC)
    found = previewed(spec_of(transform=[{"compute": {"landed": "now()"}}]), [{"id": "a"}, {"id": "b"}])
    times = {each.rows["orders.payments"]["landed"] for each in found.records.values()}
    assert len(times) == 1 and before <= times.pop() <= datetime.now(UTC)
