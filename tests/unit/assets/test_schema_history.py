"""The history of a table's schema on its page: who needed each version, and which rows came first."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.types import IcebergType, NestedField, StringType, StructType

from assets.schema_history import history_metadata
from jobs.tables.commit.schema.schema_history import new_record, schema_history, with_record
from tests.helpers.lake import NAME, STREAM, Lake


def rows(lake: Lake) -> list[tuple[str, str]]:
    text = history_metadata(lake.catalog.load_table(NAME), STREAM)["schema_history"].value or ""
    cells = [line.removeprefix("| ").removesuffix(" |").partition(" | ") for line in text.splitlines()[2:]]
    return [(schema, said) for schema, _, said in cells]


def add(lake: Lake, column: str, schema_id: int, type_: IcebergType | None = None, **said: Any) -> None:
    """As a driver does: the column and its record in one commit."""
    table = lake.catalog.load_table(NAME)
    head = table.current_snapshot()
    record = new_record(
        STREAM, [f"add column {column} string"], schema_id=schema_id, snapshot_id=head and head.snapshot_id, **said
    )
    with table.transaction() as change:
        with change.update_schema() as update:
            update.add_column(column, type_ or StringType())
        change.set_properties(with_record(table.properties, record))


def test_a_table_of_one_schema_has_no_history(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.land(3)
    assert history_metadata(lake.catalog.load_table(NAME), STREAM) == {}


def test_each_version_says_who_needed_it_and_what_came_first(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.land(2, 1)
    before = lake.table().current_snapshot()
    assert before is not None
    with lake.catalog.load_table(NAME).update_schema() as update:
        update.make_column_optional("id")
    lake.land(2, 1)
    add(lake, "a|b", 2, epoch=3, batch=7, example=("payments", 1, 4711))
    add(lake, "c", 3, StructType(NestedField(9, "x", StringType(), required=False)), by="ann")
    # Columns that rows do not have yet: the one before is the newest snapshot.
    after = lake.table().current_snapshot()
    assert after is not None
    fourth, third, second, first = (said for _, said in rows(lake))
    at = [datetime.fromtimestamp(each.at_ms / 1000, UTC) for each in schema_history(lake.table().properties)]
    assert fourth == (
        f"**added c struct\\<x string>** ({at[1]:%Y-%m-%d %H:%M:%S} UTC, by ann); "
        f"made after snapshot {after.snapshot_id}, of its own none is kept"
    )
    # A stroke in a name ends no cell.
    assert third.startswith(
        f"**added a\\|b string** ({at[0]:%Y-%m-%d %H:%M:%S} UTC, epoch 3, batch 7, for payments[1]@4711); "
    )
    assert second.startswith(f"**id may be null** (not noted by frazil); first in snapshot {after.snapshot_id} of ")
    assert second.endswith(" UTC, from payments[0]@2")
    assert first.startswith(f"**3 columns** (with the table); first in snapshot {before.snapshot_id} of ")


def test_a_long_history_is_cut(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    with lake.catalog.load_table(NAME).transaction() as change:
        for number in range(1, 53):
            with change.update_schema() as update:
                update.add_column(f"c{number}", StringType())
    found = rows(lake)
    assert len(found) == 51
    assert found[0] == ("52", "**added c52 string** (not noted by frazil); no snapshot is kept")
    assert found[-1] == ("…", "3 earlier versions")
