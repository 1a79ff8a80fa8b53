"""Previews of a stream whose tables follow its own one: they are shown as its driver would make and alter them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.records.schema.parser import parse_schema
from jobs.streaming.driver.tables.first_records import RecordsAwaitedError
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.preview.preview import preview_stream
from jobs.streaming.preview.run import part_with_tables
from jobs.streaming.preview.tables import tables_as_written
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log, document
from tests.unit.streaming.preview.previews import block_of

ROUTE: dict[str, Any] = {
    "by": "type",
    "tables": [{"match": "a|b", "table": "lake.ab"}, {"match": "b", "table": "lake.b", "columns": ["id", "type"]}],
    "to": "lake.{value}",
}


def new() -> NewColumns:
    return NewColumns(iceberg_schema(parse_schema("id long, type string")))


def test_new_tables_are_shown_with_what_the_records_add() -> None:
    spec = StreamSpec.model_validate(document(ROUTE))
    tables = tables_as_written(spec, None, new)
    documents = [
        {"id": 1, "type": "a"},
        {"id": 2, "type": "b", "more": 1},
        {"id": 3, "type": "c", "more": 2},
        {"id": "x"},
    ]
    found = preview_stream(spec, tables, [block_of(documents, topic="t")])
    assert {each.name: each.rows for each in found.tables if each.rows} == {
        "lake.ab": 2,
        "lake.b": 1,
        "lake.c": 1,
        DEAD: 1,
    }
    columns = {
        each.name: {field.name: schema_text(field.field_type) for field in each.schema.fields if field.name[0] != "_"}
        for each in found.tables
        if each.role == "rows"
    }
    every = {"id": "long", "type": "string", "more": "long"}
    assert columns == {OWN: every, "lake.ab": every, "lake.c": every, "lake.b": {"id": "long", "type": "string"}}
    assert found.changes.made == ("add column more long",)


def test_a_table_that_cannot_follow_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = {TopicPartition("t", 0): [json.dumps({"id": 1, "type": "a"}).encode()]}
    one = LaneStream(tmp_path / "home", {"by": "type", "tables": ROUTE["tables"][:1]}, log, monkeypatch)
    one.land()
    with one.catalog.load_table("lake.ab").update_schema() as change:
        change.rename_column("id", "Id")
    found = preview_stream(
        one.spec, tables_as_written(one.spec, one.catalog, new), [block_of([{"id": 2, "type": "a"}], topic="t")]
    )
    assert any("table lake.ab cannot take the columns of table lake.stream" in each for each in found.notes)


COLUMNS = {"lake.a": "id long", "lake.b": "id string"}


def new_columns_of(of_table: StreamSpec) -> NewColumns:
    if of_table.table.name not in COLUMNS:
        raise RecordsAwaitedError("stream shop: its topics have no record yet.", fix="wait")
    rows: Schema = iceberg_schema(parse_schema(COLUMNS[of_table.table.name]))
    return NewColumns(rows)


def test_the_records_of_one_table_are_shown_by_its_columns() -> None:
    tables = [{"match": "a", "table": "lake.a", "columns": {"drop": ["left"]}}, {"match": "b", "table": "lake.b"}]
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
    part, written = part_with_tables(spec, ["a"], None, new_columns_of)
    records = [{"id": 1, "left": 1}, {"id": "no number"}, {"id": 2, "more": "m"}]
    found = preview_stream(part, written, [block_of(records, topic="a"), block_of([{"id": "x"}], topic="b")])
    assert [each.outcome for each in found.records.values()] == ["landed", "dead", "landed", "not_read"]
    assert {each.name: each.rows for each in found.tables} == {"lake.a": 2, DEAD: 1}
    rows = [each.rows["lake.a"] for each in found.records.values() if each.rows]
    assert [(row["id"], row.get("more")) for row in rows] == [(1, None), (2, "m")] and "left" not in rows[0]


@pytest.mark.parametrize(
    ("topics", "said"),
    [
        (["a", "b"], "these records go to lake.a, lake.b"),
        (["d"], "needs a topic that a table of the route takes, found 'd'"),
        (["c"], "its topics have no record yet"),
    ],
)
def test_records_of_several_tables_or_of_none_are_refused(topics: list[str], said: str) -> None:
    tables = [{"match": each, "table": f"lake.{each}"} for each in "abc"]
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
    with pytest.raises(FrazilError) as refused:
        part_with_tables(spec, topics, None, new_columns_of)
    assert said in refused.value.message


def test_the_table_of_late_rows_is_shown_as_it_would_be_made_and_judges_none() -> None:
    tables = [{"match": "a", "table": "lake.a"}]
    event_time = {"column": "_kafka_timestamp", "late": "table"}
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}, event_time=event_time))
    part, written = part_with_tables(spec, ["a"], None, new_columns_of)
    found = preview_stream(part, written, [block_of([{"id": 1}, {"id": 2, "more": "m"}], topic="a")])
    shown = {each.name: each for each in found.tables}
    assert {name: each.rows for name, each in shown.items()} == {"lake.a": 2, DEAD: 0, "lake.a_late": 0}
    assert shown["lake.a_late"].schema.column_names == shown["lake.a"].schema.column_names
    assert "more" in shown["lake.a_late"].schema.column_names
    assert any("here none is" in note for note in found.notes)
