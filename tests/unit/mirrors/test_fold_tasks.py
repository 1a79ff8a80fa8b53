"""What a task does beside folding: whole keys, carried positions, and the filter's word."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from jobs.mirrors.fold.fold_tasks import whole_keys
from jobs.mirrors.fold.refold import CarriedPositions
from jobs.mirrors.fold.row_filter import RowFilter


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("pq")), max_size=20), st.integers(1, 6))
def test_rows_of_a_key_are_never_parted(keys: list[tuple[int, str]], size: int) -> None:
    rows = [{"id": key, "part": part, "n": n} for n, (key, part) in enumerate(sorted(keys))]
    table = pa.Table.from_pylist(rows, pa.schema({"id": pa.int64(), "part": pa.string(), "n": pa.int64()}))
    tables = list(whole_keys(table.to_batches(max_chunksize=size), ["id", "part"]))
    assert [row for each in tables for row in each.to_pylist()] == rows
    seen = [key for each in tables for key in {(row["id"], row["part"]) for row in each.to_pylist()}]
    assert len(seen) == len(set(seen))


def test_a_change_without_a_position_comes_behind_the_one_before_it() -> None:
    told = [(0, "05"), (1, None), (2, "03"), (3, None)]
    rows: list[dict[str, Any]] = [
        {
            "id": 1, "_change_topic": "shop", "_change_partition": 0, "_change_offset": offset,
            "_change_position": position, "_change_order": f"0000.{position or '-'}.1.{offset:016x}",
        }
        for offset, position in told
    ]  # fmt: skip
    table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["_change_order"]))
    placed = CarriedPositions(("id",), needed=True)(table)
    assert [(row["_change_offset"], row["_change_order"][5:7]) for row in placed.to_pylist()] == [
        (2, "03"), (0, "05"), (1, "05"), (3, "05"),
    ]  # fmt: skip
    assert CarriedPositions(("id",), needed=False)(table) is table
    binlog = f"00000001/{9:016x}/00000002"
    wide = table.set_column(4, "_change_position", pc.if_else(table["_change_position"].is_valid(), binlog, None))
    carried = CarriedPositions(("id",), needed=True)(wide)["_change_order"].to_pylist()
    assert sum(f".00000001/{9:016x}/ffffffff." in order for order in carried) == 2


SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "region", StringType(), required=False),
    NestedField(3, "n", LongType(), required=False),
)


def folded(*rows: tuple[str, str | None, int | None, list[str], bool]) -> pa.Table:
    names = ("_fold_op", "region", "n", "_from_target", "_refold")
    kinds = pa.schema(
        {
            "_fold_op": pa.string(), "region": pa.string(), "n": pa.int64(), "_from_target": pa.list_(pa.string()),
            "_refold": pa.bool_(),
        }
    )  # fmt: skip
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], kinds)


def test_rows_that_do_not_fulfil_the_filter_are_deleted() -> None:
    judged = RowFilter.of("region = 'eu'", SCHEMA, ["id", "region", "n"]).judged(
        folded(
            ("upsert", "eu", 1, ["n"], False),
            ("upsert", "us", 1, [], False),
            ("upsert", None, 1, [], False),
            ("delete", "us", 1, [], False),
            ("upsert", None, 1, ["n", "region"], False),
            ("upsert", "us", 1, [], True),
        )
    )
    assert judged["_fold_op"].to_pylist() == ["upsert", "delete", "delete", "delete", "upsert", "upsert"]
    assert judged["_filtered"].to_pylist() == [False, True, True, False, False, False]
    assert judged["_unjudged"].to_pylist() == [False, False, False, False, True, True]
    assert judged["_problem"].null_count == judged.num_rows


def test_a_row_that_the_filter_has_no_answer_for_is_told() -> None:
    judged = RowFilter.of("10 / n > 1", SCHEMA, ["id", "region", "n"]).judged(
        folded(("upsert", "eu", 0, [], False), ("delete", "eu", 0, [], False), ("upsert", "eu", 5, [], False))
    )
    assert judged["_problem"].to_pylist()[1:] == [None, None]
    assert "10 / n" in judged["_problem"].to_pylist()[0]


@pytest.mark.parametrize("text", [None, "region = 'eu'"])
def test_no_rows_are_judged_alike(text: str | None) -> None:
    judged = RowFilter.of(text, SCHEMA, ["id", "region", "n"]).judged(folded())
    assert judged.schema.names[-3:] == ["_filtered", "_unjudged", "_problem"]
