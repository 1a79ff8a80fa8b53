"""Rows of a selection: as they landed, in the table's columns of today, without those that conditions leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.types import LongType, StringType

from jobs.base.errors import FrazilError
from jobs.quality.incremental_scan.arrow_rows import (
    TooManyRowsError,
    arrow_batches,
    shown_schema,
    small_table,
)
from jobs.quality.incremental_scan.increment import added_files
from jobs.quality.incremental_scan.row_selection import RowSelection, rows_sql, whole_table
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from tests.helpers.landed_table import COORDINATES, NAME, LandedTable

SCHEMA = "id int, items list<struct<sku string>>, u uuid, t time, person struct<name string>, f binary"
ITEMS = {"items": [None, [], [{"sku": "a"}], [None], [{"sku": None}]]}


def rows(selection: RowSelection, *columns: str) -> list[dict[str, object]]:
    return [row for batch in arrow_batches(selection, columns) for row in batch.to_pylist()]


def test_columns_that_came_or_grew_since_are_those_of_today(tmp_path: Path) -> None:
    landed = LandedTable(tmp_path / "home", schema="id int, amount float")
    snapshot = landed.land((0, 0, 2))
    with landed.table.update_schema() as change:
        change.update_column("id", LongType())
        change.rename_column("amount", "price")
        change.add_column("note", StringType())
    table = landed.table
    found = table.metadata.snapshot_by_id(snapshot)
    assert found is not None
    files = list(added_files(found, table.io))
    expected = [{"id": 0, "price": 0.0, "note": None}, {"id": 1, "price": 1.0, "note": None}]
    for selection in (RowSelection(table, None, files), whole_table(table, COORDINATES, None)):
        assert rows(selection, "id", "price", "note") == expected
        (batch,) = arrow_batches(selection, {"id", "price", "note"})
        assert batch.schema == shown_schema(table.schema(), {"note", "price", "id"})
        assert batch.schema.field("id").type == pa.int64()


def test_nested_values_are_told_from_null_and_texts_stand_for_times_and_uuids(tmp_path: Path) -> None:
    landed = LandedTable(tmp_path / "home", schema=SCHEMA)
    values = {
        **ITEMS,
        "u": [bytes(15) + bytes([n]) for n in range(5)],
        "t": [3_600_000_000 * n for n in range(5)],
        "person": [None, {"name": None}, {"name": "a"}, None, None],
        "f": [b"a"] * 5,
    }
    landed.land((0, 0, 5), **values)
    found = rows(whole_table(landed.table, COORDINATES, None), "items", "u", "t", "person")
    assert [row["items"] for row in found] == ITEMS["items"]
    assert found[3]["u"] == "00000000-0000-0000-0000-000000000003" and str(found[3]["t"]).startswith("03:00:00")
    assert [row["person"] for row in found] == values["person"]


def test_conditions_deletes_and_ranges(tmp_path: Path) -> None:
    landed = LandedTable(tmp_path / "home")
    first = landed.land((0, 0, 4))
    landed.land((1, 0, 2))
    landed.table.delete(EqualTo("id", 1))  # type: ignore[call-arg]
    table = landed.table
    assert {row["id"] for row in rows(whole_table(table, COORDINATES, None), "id")} == {0, 2, 3, 100_000, 100_001}
    some = whole_table(table, COORDINATES, None, where="amount >= 1 and _kafka_partition = 0")
    assert {row["id"] for row in rows(some, "id")} == {2, 3}
    assert some.rows_at_most() <= 3
    assert rows_sql(some, "lake", "id IS NULL") == (
        "SELECT * FROM lake.lake.orders WHERE (id IS NULL) AND ((amount >= 1 and _kafka_partition = 0))"
    )
    # What landed is looked at as it landed.
    found = table.metadata.snapshot_by_id(first)
    assert found is not None
    files = tuple(added_files(found, table.io))
    assert {row["id"] for row in rows(RowSelection(table, COORDINATES, files), "id")} == {0, 1, 2, 3}
    outside = {TopicPartition("orders", 0): (OffsetRange(1, 3),), TopicPartition("other", 0): (OffsetRange(0, 9),)}
    assert {row["id"] for row in rows(RowSelection(table, COORDINATES, files, outside), "id")} == {0, 3}
    # A snapshot of the past has the row that was deleted since.
    past = whole_table(table, COORDINATES, None, snapshot_id=first)
    assert {row["id"] for row in rows(past, "id")} == {0, 1, 2, 3}


def test_more_than_fits_is_told(tmp_path: Path) -> None:
    landed = LandedTable(tmp_path / "home")
    landed.land((0, 0, 50))
    whole = whole_table(landed.table, COORDINATES, None)
    assert small_table(whole, {"id"}).num_rows == 50
    assert small_table(whole, {"id"}, most_bytes=1000).nbytes > 400
    bounds: list[dict[str, Any]] = [{"most_rows": 49}, {"most_bytes": 399}]
    for bound in bounds:
        with pytest.raises(TooManyRowsError, match=NAME):
            small_table(whole, {"id"}, **bound)
    assert small_table(RowSelection(landed.table, None), {"id"}).num_rows == 0


@pytest.mark.parametrize("text", ["amount >", "nothing = 1", "id = 'x'", "person.name = 'a'", "u = '1'"])
def test_what_is_no_condition_is_told(tmp_path: Path, text: str) -> None:
    landed = LandedTable(tmp_path / "home", schema="id int, amount double, person struct<name string>, u uuid")
    with pytest.raises(FrazilError, match=r"condition on table|lies within|is a uuid") as told:
        whole_table(landed.table, COORDINATES, None, where=text)
    assert told.value.fix is not None and "day = " in told.value.fix
