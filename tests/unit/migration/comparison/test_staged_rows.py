"""Rows of two sides that DuckDB matches: by coordinates, by key, and as whole rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types as ice

from jobs.migration.comparison.staged_rows import (
    Pair,
    SharedColumn,
    Side,
    StagedRows,
    nearest_pairs,
    shared_columns,
    staged_column,
)

ID, QTY = SharedColumn("id", "id", ice.StringType(), ice.StringType()), SharedColumn(
    "qty", "qty", ice.LongType(), ice.IntegerType()
)  # fmt: skip


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[StagedRows]:
    with StagedRows(tmp_path) as made:
        yield made


def place(offsets: list[int | None], topic: str = "t", partition: int = 0) -> dict[str, pa.Array]:
    known = [None if each is None else topic for each in offsets]
    return {
        "topic": pa.array(known, pa.string()),
        "partition": pa.array([partition] * len(offsets), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
    }


def add(staged: StagedRows, side: Side, rows: list[dict[str, Any]], offsets: list[int | None] | None = None) -> None:
    staged.add(side, pa.Table.from_pylist(rows), place(offsets) if offsets is not None else None)


def offsets_of(rows: Iterator[tuple[Any, tuple[Any, ...]]]) -> list[int | None]:
    return [each[0][2] for each in rows]


def test_rows_are_matched_by_their_coordinates(staged: StagedRows) -> None:
    add(staged, "ours", [{"id": "a", "qty": 1}, {"id": "b", "qty": 2}], [0, 1])
    add(staged, "ours", [{"id": "c", "qty": 3}], [5])
    add(staged, "theirs", [{"id": "b", "qty": 9}, {"id": "a", "qty": 1}, {"id": "x", "qty": 0}], [1, 0, 7])
    staged.match([ID, QTY], "coordinates")
    assert staged.matched() == 2
    assert list(staged.pairs()) == [Pair(("t", 0, 1), ("b", 2), ("b", 9))]
    assert [each.place[2] for each in staged.pairs(only_different=False)] == [0, 1]
    assert list(staged.unmatched("ours", 5)) == [(("t", 0, 5), ("c", 3))]
    assert offsets_of(staged.unmatched("theirs", 5)) == [7]
    assert staged.last_matched() == {("t", 0): 1} and staged.last_places("theirs") == {("t", 0): 7}


def test_a_second_row_of_one_record_is_a_double_and_nothing_else(staged: StagedRows) -> None:
    add(staged, "ours", [{"id": "a"}], [0])
    add(staged, "theirs", [{"id": "a"}, {"id": "a"}, {"id": "n"}], [0, 0, None])
    staged.match([ID], "coordinates")
    assert (staged.matched(), staged.doubled(), staged.without_place()) == (1, 1, 1)
    assert offsets_of(staged.unmatched("theirs", 5)) == [None]


def test_records_without_a_row_here_are_looked_for_there(staged: StagedRows) -> None:
    staged.add_absent([3, 3, 4], [("t", 0, 1), ("t", 0, 2), ("t", 0, 3)])
    add(staged, "theirs", [{"id": "a"}, {"id": "b"}, {"id": "c"}], [1, 2, 9])
    staged.match([ID], "coordinates")
    assert staged.absent_there() == {3: 2}
    assert offsets_of(staged.unmatched("theirs", 5)) == [9]
    assert dict(staged.at_places([("t", 0, 2), ("t", 0, 8)])) == {("t", 0, 2): {"id": "b"}}


def test_of_rows_with_one_key_those_belong_together_that_are_equal(staged: StagedRows) -> None:
    add(staged, "ours", [{"id": "a", "qty": 1}, {"id": "a", "qty": 2}, {"id": "a", "qty": 3}], [0, 1, 2])
    add(staged, "theirs", [{"id": "a", "qty": 3}, {"id": "a", "qty": 7}, {"id": "b", "qty": 1}])
    staged.match([ID, QTY], "key", ["id"])
    assert staged.matched() == 2
    assert list(staged.pairs()) == [Pair(("t", 0, 0), ("a", 1), ("a", 7))]
    assert offsets_of(staged.unmatched("ours", 5)) == [1]
    assert [values for _, values in staged.unmatched("theirs", 5)] == [("b", 1)]


def test_whole_rows_are_matched_one_with_one_and_the_rest_by_the_nearest(staged: StagedRows) -> None:
    columns = [ID, QTY, SharedColumn("note", "note", ice.StringType(), ice.StringType())]
    add(staged, "ours", [{"id": "a", "qty": 1, "note": "n"}] * 2 + [{"id": "b", "qty": 2**31, "note": "m"}], [0, 1, 2])
    add(staged, "theirs", [{"id": "a", "qty": 1, "note": "n"}, {"id": "b", "qty": -(2**31), "note": "m"}])
    staged.match(columns, "rows")
    assert list(staged.pairs()) == [Pair(("t", 0, 2), ("b", 2**31, "m"), ("b", -(2**31), "m"))]
    assert offsets_of(staged.unmatched("ours", 5)) == [1]


def test_sides_without_rows_match_nothing(staged: StagedRows) -> None:
    staged.match([ID], "coordinates")
    assert staged.matched() == 0 and list(staged.pairs()) == []
    assert (staged.rows("ours"), staged.doubled(), staged.absent_there()) == (0, 0, {})
    assert staged.filled("ours", "nothing") == 0


def test_a_column_that_comes_late_is_null_before(staged: StagedRows) -> None:
    add(staged, "ours", [{"id": "a"}], [0])
    add(staged, "ours", [{"id": "b", "qty": 2**40}], [1])
    add(staged, "theirs", [{"id": "a", "qty": 0}, {"id": "b", "qty": 0}], [0, 1])
    staged.match([ID, QTY], "coordinates")
    assert [each.ours[1] for each in staged.pairs()] == [None, 2**40]
    assert staged.filled("ours", "qty") == 1


def test_types_are_compared_where_they_can_be(staged: StagedRows) -> None:
    wide, narrow = ice.DecimalType(10, 4), ice.DecimalType(8, 2)
    columns = [
        SharedColumn("amount", "amount", wide, narrow),
        SharedColumn("at", "at", ice.TimestamptzType(), ice.TimestampType()),
        SharedColumn("n", "n", ice.StringType(), ice.LongType()),
        SharedColumn("part", "part", ice.StructType(ice.NestedField(1, "a", ice.LongType())), ice.StringType()),
    ]
    assert [each.common for each in columns] == ["DECIMAL(10, 4)", "BIGINT", None, None]
    noon = datetime(2026, 2, 28, 12, tzinfo=UTC)
    ours = pa.table(
        {
            "amount": pa.array([Decimal("1.5000")], pa.decimal128(10, 4)),
            "at": pa.array([noon], pa.timestamp("us", tz="UTC")),
            "n": ["5"],
            "part": [{"a": 1}],
        }
    )
    theirs = pa.table(
        {
            "amount": pa.array([Decimal("1.50")], pa.decimal128(8, 2)),
            "at": pa.array([noon.replace(tzinfo=None)], pa.timestamp("us")),
            "n": [5],
            "part": ['{"a":1}'],
        }
    )
    staged.add("ours", ours, place([0]))
    staged.add("theirs", theirs, place([0]))
    staged.match(columns[:2], "coordinates")
    assert list(staged.pairs()) == []
    assert staged.matched() == 1


def test_what_only_python_can_compare_is_always_given() -> None:
    assert SharedColumn("n", "n", ice.StringType(), ice.LongType()).common is None
    assert SharedColumn("n", "n", ice.DecimalType(38, 0), ice.DecimalType(38, 10)).common is None
    nested = ice.ListType(1, ice.LongType())
    assert SharedColumn("n", "n", nested, nested).common == ""


def test_times_are_staged_as_numbers_at_every_depth() -> None:
    far = 1_772_280_000_000_000_000  # The year 58,131, for which Python has no date.
    at = pa.array([far], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    nested = pa.StructArray.from_arrays([at], ["at"])
    assert staged_column(at).to_pylist() == [far]
    assert staged_column(nested).to_pylist() == [{"at": far}]
    assert staged_column(pa.ListArray.from_arrays(pa.array([0, 1]), at)).to_pylist() == [[far]]
    assert staged_column(pa.array([date(1970, 1, 2)])).to_pylist() == [1]
    assert staged_column(pa.array([time(0, 0, 1)], pa.time64("us"))).to_pylist() == [1_000_000]
    assert staged_column(pa.array([b"xy"], pa.binary(2))).to_pylist() == [b"xy"]
    assert staged_column(pa.array(["x"], pa.large_string())).type == pa.string()
    one = uuid.UUID(int=7)
    assert staged_column(pa.array([one.bytes, None], pa.uuid())).to_pylist() == [str(one), None]


def test_columns_of_one_name_are_shared_in_any_case() -> None:
    long, text = ice.LongType(), ice.StringType()
    found = shared_columns({"id": long, "Name": text, "x": long, "X": long}, {"id": long, "name": text, "X": long})
    assert [(each.ours, each.theirs) for each in found] == [("id", "id"), ("Name", "name"), ("X", "X")]


def test_the_nearest_rows_are_paired_once_and_only_if_half_is_the_same() -> None:
    ours = [("a", 1, "x"), ("b", 2, "y"), ("q", 7, "z")]
    theirs = [("b", 2, "Y"), ("a", 1, "x!"), ("a", 1, "x"), ("r", 8, "z")]
    assert nearest_pairs(ours, theirs) == [(0, 2), (1, 0)]
    assert nearest_pairs([], theirs) == [] and nearest_pairs(ours, []) == []
    common = [("same", n) for n in range(30)]
    assert nearest_pairs([("same", -1)], common) == []
