"""The history of a table's schema: what each version changed, and what came with it first."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from jobs.quality.schema_checks.history import schema_steps, schema_versions
from jobs.tables.commit.schema.schema_history import new_record, with_record
from tests.helpers.lake import NAME, STREAM, Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_versions_with_the_snapshot_and_offsets_that_came_first(lake: Lake) -> None:
    lake.land(3)
    with lake.catalog.load_table(NAME).update_schema() as update:
        update.make_column_optional("id")
    lake.land(2)
    lake.land(2)
    first, second = schema_versions(lake.catalog.load_table(NAME).metadata, STREAM)
    assert (first.schema_id, first.changes) == (0, ("3 columns",))
    assert second.changes == ("id may be null",)
    assert first.start is not None
    assert second.start is not None
    assert list(first.start.values()) < list(second.start.values())
    assert first.snapshot_id != second.snapshot_id
    assert second.committed_ms is not None


def test_a_version_without_a_kept_snapshot_has_its_changes(lake: Lake) -> None:
    with lake.catalog.load_table(NAME).update_schema() as update:
        update.add_column("note", StringType())
    *_, last = schema_versions(lake.catalog.load_table(NAME).metadata, STREAM)
    assert (last.changes, last.snapshot_id, last.start) == (("added note string",), None, None)


def test_who_needed_a_version_is_noted(lake: Lake) -> None:
    table = lake.catalog.load_table(NAME)
    with table.transaction() as change:
        with change.update_schema() as update:
            update.add_column("note", StringType())
        record = new_record(STREAM, ["add column note string"], schema_id=1, snapshot_id=None, epoch=3, batch=7)
        change.set_properties(with_record({}, record))
    first, second = schema_versions(lake.catalog.load_table(NAME).metadata, STREAM)
    assert first.record is None
    assert second.record == record


def test_columns_are_told_apart_by_their_ids() -> None:
    inner = StructType(NestedField(4, "x", StringType(), required=False))
    before = Schema(
        NestedField(1, "a", StringType(), required=True),
        NestedField(2, "b", StringType(), required=False),
        NestedField(6, "n", StringType(), required=False),
    )
    after = Schema(
        NestedField(1, "a", StringType(), required=False),
        NestedField(3, "o", inner, required=False),
        NestedField(5, "b", LongType(), required=False),
        NestedField(6, "m", LongType(), required=False),
    )
    assert list(schema_steps(before, after)) == [
        "added o struct<x string>",
        "added b long",
        "a may be null",
        "renamed n to m",
        "m from string to long",
        "dropped b",
    ]
    assert list(schema_steps(after, after)) == []
