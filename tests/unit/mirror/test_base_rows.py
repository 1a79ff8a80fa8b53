"""Base rows: with them, and the changes that are left, a key is folded to what all of its changes make of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.mirror.base_rows import BASE_COLUMN, AmongBaseRows
from jobs.mirror.fold import fold
from tests.unit.mirror.fold_reference import UNKNOWN, Change, all_applied
from tests.unit.mirror.test_fold import COLUMNS, EVERY_CHANGE, KEY, ROWS, History, changes_of

BASED = ROWS.append(pa.field(BASE_COLUMN, pa.bool_()))
HISTORIES = st.lists(st.sampled_from(EVERY_CHANGE), min_size=1, max_size=9).map(tuple)


def row_of(change: Change, number: int, *, base: bool = False) -> dict[str, Any]:
    extra = {
        "_change_op": change.op,
        "_change_order": f"{number:04}",
        "_change_unavailable": change.unavailable or None,
    }
    return {**change.row, **extra, BASE_COLUMN: base}


@given(st.lists(st.tuples(HISTORIES, st.integers(0, 9), st.integers(0, 9), st.sets(st.integers(0, 8))), max_size=4))
def test_a_base_stands_for_the_changes_that_are_gone(cases: list[tuple[History, int, int, set[int]]]) -> None:
    rows: list[dict[str, Any]] = []
    expected: dict[tuple[int, str], Any] = {}
    for key, (history, gone, based, late) in enumerate(cases):
        changes = changes_of((key, "p"), history)
        gone = min(gone, based)
        # Late ones land after the base was made, and none of them is from before what is gone.
        landed = [n for n in range(min(based, len(changes))) if n < gone or n not in late]
        rows += [row_of(change, n) for n, change in enumerate(changes) if n >= gone]
        base = all_applied(None, (changes[n] for n in landed))
        if base is not None:
            known = {name: None if value == UNKNOWN else value for name, value in base.items()}
            rows.append(row_of(Change("u", known), landed[-1], base=True))
        expected[key, "p"] = all_applied(None, changes)
    table = pa.Table.from_pylist(rows, BASED)
    order = [(name, "ascending") for name in (*KEY, "_change_order")]
    prepared = AmongBaseRows(KEY, COLUMNS, lambda changes: changes)(table.sort_by(order))
    found = {(row["id"], row["part"]): row for row in fold(prepared, KEY, COLUMNS).to_pylist()}
    for key, row in expected.items():
        if row is None:
            assert key not in found or found[key]["_fold_op"] == "delete"
            continue
        assert found[key]["_fold_op"] == "upsert"
        for name, value in row.items():
            assert value == UNKNOWN or (found[key][name] == value and name not in found[key]["_from_target"])


def test_what_a_change_before_it_has_a_base_row_leaves_to_it() -> None:
    first, second = Change("u", {"a": None, "b": [("1", None)]}, ("a",)), Change("u", {"a": None, "b": None}, ("b",))
    base = Change("u", {"a": {"x": 7, "y": None}, "b": [("0", None)]})
    key = {"id": 1, "part": "p"}
    rows = [row_of(first, 1) | key, row_of(second, 2) | key, row_of(base, 2, base=True) | key]
    (row,) = fold(
        AmongBaseRows(KEY, COLUMNS, lambda changes: changes)(pa.Table.from_pylist(rows, BASED)), KEY, COLUMNS
    ).to_pylist()
    # The second says that a is null; of b the first knows more than the base.
    assert (row["a"], row["b"], row["_change_order"]) == (None, [("1", None)], "0002")
