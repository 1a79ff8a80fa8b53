"""Rows whose key changed, as a task of Spark folds them: each with all changes of the keys that it had."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from jobs.mirrors.fold.fold import sorted_rows
from jobs.mirrors.fold.moved_rows import MOVED_COLUMN, UNKNOWN_COLUMN, MovedTask
from jobs.mirrors.fold.row_filter import RowFilter

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "note": pa.string(),
        "_change_op": pa.string(),
        "_change_unavailable": pa.list_(pa.string()),
        "_change_old_key": pa.struct({"id": pa.int64()}),
        "_change_order": pa.string(),
        "_change_row": pa.int64(),
        "_change_own": pa.bool_(),
    }
)


def told(row: int, own: bool, op: str, key: int, order: int, note: str | None = None, old: int | None = None) -> Any:
    left_out = ["note"] if op != "d" and note is None else None
    former = None if old is None else {"id": old}
    values = (key, note, op, left_out, former, f"{order:04x}", row, own)
    return dict(zip(SCHEMA.names, values, strict=True))


def folded(changes: list[Any], batch: int) -> list[dict[str, Any]]:
    table = sorted_rows(pa.Table.from_pylist(changes, SCHEMA), ("_change_row", "id", "_change_order"))
    task = MovedTask(("id",), ("id", "note"), RowFilter(), placed=False)
    return [row for part in task(table.combine_chunks().to_batches(batch)) for row in part.to_pylist()]


def test_each_row_has_the_values_of_its_former_keys_wherever_batches_end() -> None:
    changes = list[Any]()
    for n in range(5):
        # The key 100 is the former one of all of them, and has changed since then.
        changes += [told(n, False, "c", 100, 1, "shared"), told(n, False, "d", 100, 2)]
        changes += [told(n, True, "c", n, 3, old=100), told(n, True, "u", n, 5), told(n, False, "c", 100, 9, "later")]
    # Of this one there is no change, and of this former key no deletion.
    changes += [told(7, False, "c", 200, 1, "x"), told(8, False, "c", 200, 1, "y"), told(8, True, "c", 8, 3, old=200)]
    for batch in (1, 2, 3, 7, 100):
        found = folded(changes, batch)
        assert [(row["id"], row["note"], row["_change_order"]) for row in found] == [
            *[(n, "shared", "0005") for n in range(5)],
            (8, "y", "0003"),
        ]
        assert [row[UNKNOWN_COLUMN] for row in found] == [row[MOVED_COLUMN] for row in found] == [0, 0, 0, 0, 0, 1]
