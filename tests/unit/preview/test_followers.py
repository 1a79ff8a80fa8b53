"""Previews of a stream whose tables follow its own one: they are shown as its driver would make and alter them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.commit.offsets import TopicPartition
from jobs.preview.preview import preview_stream
from jobs.preview.tables import tables_as_written
from jobs.schema.iceberg_schema import iceberg_schema, schema_text
from jobs.schema.parser import parse_schema
from jobs.spec.models import StreamSpec
from jobs.stream.new_rows import NewColumns
from tests.helpers.lane_stream import DEAD, OWN, LaneStream, Log, document
from tests.unit.preview.previews import block_of

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
