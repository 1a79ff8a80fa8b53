"""Previews of a stream each of whose tables has columns of its own: of one table at a time."""

from __future__ import annotations

import pytest
from pyiceberg.schema import Schema

from jobs.errors import FrazilError
from jobs.preview.preview import preview_stream
from jobs.preview.run import part_with_tables
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.models import StreamSpec
from jobs.stream.first_records import RecordsAwaitedError
from jobs.stream.new_rows import NewColumns
from tests.helpers.lane_stream import DEAD, document
from tests.unit.preview.previews import block_of

COLUMNS = {"lake.a": "id long", "lake.b": "id string"}


def new(of_table: StreamSpec) -> NewColumns:
    if of_table.table.name not in COLUMNS:
        raise RecordsAwaitedError("stream shop: its topics hold no record yet.", fix="wait")
    rows: Schema = iceberg_schema(parse_schema(COLUMNS[of_table.table.name]))
    return NewColumns(rows)


def test_the_records_of_one_table_are_shown_by_its_columns() -> None:
    tables = [{"match": "a", "table": "lake.a", "columns": {"drop": ["left"]}}, {"match": "b", "table": "lake.b"}]
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
    part, written = part_with_tables(spec, ["a"], None, new)
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
        (["c"], "its topics hold no record yet"),
    ],
)
def test_records_of_several_tables_or_of_none_are_refused(topics: list[str], said: str) -> None:
    tables = [{"match": each, "table": f"lake.{each}"} for each in "abc"]
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
    with pytest.raises(FrazilError) as refused:
        part_with_tables(spec, topics, None, new)
    assert said in refused.value.message


def test_the_table_of_late_rows_is_shown_as_it_would_be_made_and_judges_none() -> None:
    tables = [{"match": "a", "table": "lake.a"}]
    event_time = {"column": "_kafka_timestamp", "late": "table"}
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}, event_time=event_time))
    part, written = part_with_tables(spec, ["a"], None, new)
    found = preview_stream(part, written, [block_of([{"id": 1}, {"id": 2, "more": "m"}], topic="a")])
    shown = {each.name: each for each in found.tables}
    assert {name: each.rows for name, each in shown.items()} == {"lake.a": 2, DEAD: 0, "lake.a_late": 0}
    assert shown["lake.a_late"].schema.column_names == shown["lake.a"].schema.column_names
    assert "more" in shown["lake.a_late"].schema.column_names
    assert any("here none is" in note for note in found.notes)
