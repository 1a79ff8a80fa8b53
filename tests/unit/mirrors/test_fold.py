"""Folding: the same as one change at a time, for every small history, and for large ones that Hypothesis finds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirrors.fold.fold import fold, folded_schema
from tests.unit.mirrors.fold_reference import (
    UNKNOWN,
    Change,
    Row,
    all_applied,
)

ROWS = pa.schema(
    {
        "_change_op": pa.string(),
        "_change_order": pa.string(),
        "_change_unavailable": pa.list_(pa.string()),
        "id": pa.int64(),
        "part": pa.string(),
        "a": pa.struct({"x": pa.int32(), "y": pa.list_(pa.string())}),
        "b": pa.map_(pa.string(), pa.decimal128(9, 2)),
    }
)
KEY, COLUMNS = ("id", "part"), ("id", "part", "a", "b")
History = tuple[tuple[str, tuple[str, ...]], ...]
EVERY_CHANGE = [
    *product(("c", "r", "d"), [()]),
    *product(("u",), [(), ("a",), ("b",), ("b", "a")]),
    *product(("c",), [("a",)]),
]
TARGET: Row = {"a": {"x": -1, "y": None}, "b": []}


def a_row(key: tuple[int, str], number: int, unavailable: tuple[str, ...]) -> Row:
    """Values of which no two changes have the same, and nulls among them."""
    a = None if number % 5 == 4 or "a" in unavailable else {"x": number, "y": [str(number), None]}
    b = None if number % 7 == 6 or "b" in unavailable else [(str(number), None)]
    return {"id": key[0], "part": key[1], "a": a, "b": b}


def changes_of(key: tuple[int, str], history: History) -> list[Change]:
    return [Change(op, a_row(key, n, missing), missing) for n, (op, missing) in enumerate(history)]


def table_of(histories: dict[tuple[int, str], History]) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for key in sorted(histories):
        for number, change in enumerate(changes_of(key, histories[key])):
            listed = change.unavailable or (None if number % 2 else ())
            extra = {"_change_op": change.op, "_change_order": f"{number:04}", "_change_unavailable": listed}
            rows.append({**change.row, **extra})
    return pa.Table.from_pylist(rows, ROWS)


def same_as_one_at_a_time(histories: dict[tuple[int, str], History], table: pa.Table) -> None:
    folded = fold(table, KEY, COLUMNS)
    assert folded.schema == folded_schema(table.schema, COLUMNS)
    by_key = {(row["id"], row["part"]): row for row in folded.to_pylist()}
    assert len(by_key) == folded.num_rows == sum(map(bool, histories.values()))
    for key, history in histories.items():
        if not history:
            continue
        row = by_key[key]
        assert row["_change_order"] == f"{len(history) - 1:04}"
        for target in (None, {"id": key[0], "part": key[1], **TARGET}):
            expected = all_applied(target, changes_of(key, history))
            assert (row["_fold_op"] == "delete") == (expected is None)
            if expected is None:
                assert (row["_from_target"], row["_refold"]) == ([], False)
                continue
            unknown = {name for name, value in expected.items() if value == UNKNOWN}
            asked = set(row["_from_target"])
            assert row["_refold"] == bool(unknown - asked)
            assert unknown <= asked or row["_refold"]
            for name in COLUMNS:
                found = (target or {}).get(name, UNKNOWN) if name in asked else row[name]
                if name in unknown:
                    assert row[name] is None
                else:
                    assert found == expected[name]


def test_every_history_of_up_to_four_changes() -> None:
    every = [history for length in range(1, 5) for history in product(EVERY_CHANGE, repeat=length)]
    random.Random(7).shuffle(every)
    # Two keys with the same first part stand beside each other each time.
    histories = {(n // 2, "pq"[n % 2]): history for n, history in enumerate(every)}
    same_as_one_at_a_time(histories, table_of(histories))


some_histories = st.dictionaries(
    st.tuples(st.integers(0, 2), st.sampled_from(["", "p", "q"])),
    st.lists(st.sampled_from(EVERY_CHANGE), min_size=1, max_size=12).map(tuple),
    min_size=1,
    max_size=6,
)


@given(some_histories, st.integers(1, 7))
def test_longer_histories_in_tables_of_several_pieces(histories: dict[tuple[int, str], History], piece: int) -> None:
    table = table_of(histories)
    batches: Sequence[pa.RecordBatch] = table.to_batches(max_chunksize=piece)
    same_as_one_at_a_time(histories, pa.Table.from_batches(batches))
    # A part of a larger table, as Spark hands on slices.
    padded = pa.concat_tables([table.slice(0, 1), table, table.slice(0, 1)]).combine_chunks()
    same_as_one_at_a_time(histories, padded.slice(1, table.num_rows))
    same_as_one_at_a_time(histories, table)


def test_nothing_gives_nothing() -> None:
    assert fold(ROWS.empty_table(), KEY, COLUMNS).num_rows == 0


def test_ten_thousand_changes_of_one_key() -> None:
    history: History = (("c", ()), ("u", ("a",)), *[("u", ("b",))] * 9_998)
    folded = fold(table_of({(1, "p"): history}), KEY, COLUMNS).to_pylist()[0]
    assert folded["a"] == a_row((1, "p"), 9_999, ())["a"]
    assert folded["b"] == a_row((1, "p"), 1, ())["b"]
    assert (folded["_from_target"], folded["_refold"]) == ([], False)
