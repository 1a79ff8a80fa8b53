"""Previews of a stream each of whose tables has columns of its own."""

from __future__ import annotations

from pyiceberg.schema import Schema

from jobs.preview.lanes import lanes_of, preview_lanes
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.needs import Coordinates
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


def test_each_topic_is_shown_by_the_columns_of_its_table() -> None:
    tables = [{"match": each, "table": f"lake.{each}"} for each in "abc"]
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
    lanes = lanes_of(spec, ["a", "b", "c", "d"], None, new)
    assert set(lanes.unrouted) == {"c", "d"} and len(lanes.parts) == 2
    blocks = [
        block_of([{"id": 1}, {"id": "no number"}, {"id": 2, "more": "m"}], topic="a"),
        block_of([{"id": "x"}, None], topic="b"),
        block_of([{}], topic="c"),
        block_of([{"id": 1}, None], topic="d"),
    ]
    found = preview_lanes(lanes, blocks)
    outcomes = {(at.topic, at.offset): each.outcome for at, each in found.records.items()}
    assert outcomes == {
        ("a", 0): "landed",
        ("a", 1): "dead",
        ("a", 2): "landed",
        ("b", 0): "landed",
        ("b", 1): "tombstone",
        ("c", 0): "dead",
        ("d", 0): "dead",
        ("d", 1): "tombstone",
    }
    assert {each.name: each.rows for each in found.tables} == {"lake.a": 2, "lake.b": 1, DEAD: 1}
    row = found.records[Coordinates("a", 0, 2)].rows["lake.a"]
    assert (row["id"], row["more"], row["_kafka_offset"]) == (2, "m", 2)
    assert found.changes.made == ("lake.a: add column more string",)
    letter = found.records[Coordinates("d", 0, 0)].letter
    assert letter is not None and letter.message == "needs a topic that a table of the route takes, found 'd'"
    letter = found.records[Coordinates("c", 0, 0)].letter
    assert letter is not None and "lake.c is not made yet: its topics hold no record yet" in str(letter.message)
    assert found.config == spec.config_hash


def test_a_table_is_shown_with_the_columns_that_it_keeps() -> None:
    tables = [{"match": "a", "table": "lake.a", "columns": {"drop": ["more"]}}]
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}))
    lanes = lanes_of(spec, ["a"], None, new)
    found = preview_lanes(lanes, [block_of([{"id": 1, "more": "m"}, {"id": 2, "new": 1}], topic="a")])
    rows = [each.rows["lake.a"] for each in found.records.values()]
    assert [(row["id"], row.get("more"), row.get("new")) for row in rows] == [(1, None, None), (2, None, 1)]
    assert "more" not in rows[0] and any("new" in each for each in found.changes.made)


def test_the_table_of_late_rows_is_shown_as_it_would_be_made_and_judges_none() -> None:
    tables = [{"match": "a", "table": "lake.a"}]
    event_time = {"column": "_kafka_timestamp", "late": "table"}
    spec = StreamSpec.model_validate(document({"by": "topic", "tables": tables}, event_time=event_time))
    lanes = lanes_of(spec, ["a"], None, new)
    found = preview_lanes(lanes, [block_of([{"id": 1}, {"id": 2, "more": "m"}], topic="a")])
    shown = {each.name: each for each in found.tables}
    assert {name: each.rows for name, each in shown.items()} == {"lake.a": 2, DEAD: 0, "lake.a_late": 0}
    assert shown["lake.a_late"].schema.column_names == shown["lake.a"].schema.column_names
    assert "more" in shown["lake.a_late"].schema.column_names
    assert any("here none is" in note for note in found.notes)
