"""The SQL of a merge: what is narrowed, and what is quoted."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from jobs.mirrors.fold.merge_sql import (
    Buckets,
    KeyRange,
    floor_sql,
    literal,
    merge_sql,
    where_changes_are,
)
from jobs.mirrors.model.merge_plan import TruncateFloor


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7L"),
        ("o'b\\", "'o\\'b\\\\'"),
        ("x" * 201, None),
        (date(2026, 3, 1), "DATE'2026-03-01'"),
        (datetime(2026, 3, 1, 12, tzinfo=UTC), "TIMESTAMP'2026-03-01T12:00:00+00:00'"),
        (datetime(2026, 3, 1, 12), "TIMESTAMP_NTZ'2026-03-01T12:00:00'"),
        (True, None),
        (0.5, None),
        (None, None),
    ],
)
def test_bounds_of_keys(value: object, text: str | None) -> None:
    assert literal(value) == text


def test_only_where_changes_are_is_read() -> None:
    ranges = [KeyRange("id", 3, 9), KeyRange("name", "a", "x" * 300)]
    some, all_of_them = Buckets("`lake`.system.bucket", 4, "id", (0, 3)), Buckets("b", 2, "id", (0, 1))
    assert where_changes_are("t", ranges, some) == (
        "t.`id` BETWEEN 3L AND 9L AND `lake`.system.bucket(4, t.`id`) IN (0, 3)"
    )
    assert where_changes_are("t", ranges[1:], all_of_them) == "true"


def test_soft_deletes_keep_the_row() -> None:
    kwargs = {"kept": ("note",), "narrowed": "true"}
    hard = merge_sql("m", "v", ["id"], ["id", "note"], deletes="hard", **kwargs)  # type: ignore[arg-type]
    soft = merge_sql("m", "v", ["id"], ["id", "note"], deletes="soft", **kwargs)  # type: ignore[arg-type]
    assert "THEN DELETE\n" in hard
    assert "_change_deleted" not in hard
    assert "THEN UPDATE SET t._change_deleted = true, t._change_order = s._change_order\n" in soft
    assert "t.`note` = CASE WHEN array_contains(s._from_target, 'note') THEN t.`note` ELSE s.`note` END" in soft
    assert soft.endswith(
        "INSERT (`id`, `note`, `_change_order`, `_change_deleted`) VALUES (s.`id`, s.`note`, s._change_order, false)"
    )


def test_a_row_that_was_folded_again_from_what_is_left_replaces_one_of_its_order() -> None:
    text = merge_sql("m", "v", ["id"], ["id"], deletes="hard", kept=(), narrowed="true")
    newer = (
        "(coalesce(s._set, s._change_order >= coalesce(t._change_order, '')) OR "
        "s._change_order > coalesce(t._change_order, ''))"
    )
    assert f"WHEN MATCHED AND s._fold_op = 'delete' AND {newer} THEN DELETE\n" in text
    assert f"WHEN MATCHED AND s._fold_op = 'upsert' AND {newer} THEN UPDATE SET" in text


def test_a_floor_takes_all_that_is_older() -> None:
    floor = TruncateFloor("0001.05.1.0")
    assert floor_sql("m", [floor], "hard") == (
        "DELETE FROM m WHERE _change_order IS NULL OR _change_order < '0001.05.1.0'"
    )
    # Rows that were there when the table was adopted go, too: they are older than every change.
    soft = floor_sql("m", [floor], "soft")
    assert soft.startswith(
        "UPDATE m SET _change_deleted = true WHERE (_change_order IS NULL OR _change_order < '0001.05.1.0')"
    )
    assert soft.endswith(" AND NOT coalesce(_change_deleted, false)")
