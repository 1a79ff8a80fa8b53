"""Rows are sorted by the columns that are named, and by no path that a name may look like."""

import pyarrow as pa

from jobs.mirrors.fold.fold import sorted_rows


def test_a_name_that_begins_with_a_dot_is_a_name() -> None:
    rows = pa.table({".id": [1, 2, 1, None], "id": [1, 2, 3, 4], "a.b": ["x", "y", "z", "w"]})
    assert sorted_rows(rows, [".id", "a.b"]).to_pydict() == {
        ".id": [1, 1, 2, None], "id": [1, 3, 2, 4], "a.b": ["x", "z", "y", "w"],
    }  # fmt: skip
    assert sorted_rows(rows.slice(4), ["id"]).num_rows == 0
