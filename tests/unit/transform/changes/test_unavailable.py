"""Values that were not sent: each form of the placeholder is null and named, and nothing else is."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.transform.changes.row_changes import without_placeholders

P = "__debezium_unavailable_value"
CODES = list(P.encode())
FORMS: list[tuple[pa.DataType, Any, Any]] = [
    (pa.string(), P, P + "x"),
    (pa.string(), f'"{P}"', P[:-1]),
    (pa.string(), f'["{P}"]', f'["{P}","a"]'),
    (pa.string(), f'{{"{P}":"{P}"}}', "{}"),
    (pa.string(), P.encode().hex(), ""),
    (pa.string(), "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", "X19k"),
    (pa.binary(), P.encode(), b""),
    (pa.list_(pa.string()), [P], [P, P]),
    (pa.list_(pa.binary()), [P.encode()], []),
    (pa.list_(pa.int32()), CODES, [*CODES, 1]),
    (pa.list_(pa.int64()), CODES, [None] * len(CODES)),
    (pa.list_(pa.date32()), CODES, CODES[::-1]),
    (pa.map_(pa.string(), pa.string()), [(P, P)], [("a", P)]),
]


def without(array: pa.Array, among: list[bool] | None = None) -> tuple[list[Any], list[Any] | None]:
    mask = np.array([True] * len(array) if among is None else among, bool)
    columns, names = without_placeholders(["n", "c"], [pa.nulls(len(array), pa.int32()), array], P, mask)
    assert columns[1].type == array.type
    columns[1].validate(full=True)
    return columns[1].to_pylist(), None if names is None else names.to_pylist()


@pytest.mark.parametrize(("kind", "sent", "other"), FORMS, ids=str)
def test_each_form_is_null_and_named(kind: pa.DataType, sent: Any, other: Any) -> None:
    # As a part of a longer array, behind a longer value.
    array = pa.array([other, other, sent, None, other, sent], kind)[1:]
    expected = array.to_pylist()
    values, names = without(array)
    assert values == [expected[0], None, None, expected[3], None]
    assert names == [None, ["c"], None, None, ["c"]]
    assert without(array, [True, False, True, True, False]) == (expected, None)


def test_a_uuid_of_it_in_lists_of_uuids() -> None:
    made = uuid.UUID(bytes=hashlib.md5(P.encode(), usedforsecurity=False).digest(), version=3)
    for kind, value in ((pa.binary(16), made.bytes), (pa.string(), str(made))):
        assert without(pa.array([[value], [value, value], None], pa.list_(kind)))[1] == [["c"], None, None]


@pytest.mark.parametrize(
    "kind",
    [pa.bool_(), pa.int64(), pa.float64(), pa.list_(pa.float64()), pa.list_(pa.list_(pa.string())), pa.binary(16)],
    ids=str,
)
def test_other_types_hold_none(kind: pa.DataType) -> None:
    assert without(pa.nulls(2, kind))[1] is None


@given(st.lists(st.tuples(*[st.sampled_from([P, "a", None])] * 3), max_size=6), st.integers(0, 2))
def test_names_are_in_the_order_of_the_columns(rows: list[tuple[Any, ...]], skipped: int) -> None:
    names = ["x", "y", "z"]
    arrays = [pa.array([None, *(row[at] for row in rows)], pa.string())[1:] for at in range(3)]
    among = np.array([at % 3 != skipped for at in range(len(rows))], bool)
    columns, found = without_placeholders(names, arrays, P, among)
    lists = [None] * len(rows) if found is None else found.to_pylist()
    for at, row in enumerate(rows):
        gone = [name for name, value in zip(names, row, strict=True) if value == P and among[at]]
        assert lists[at] == (gone or None)
        left = tuple(each[at].as_py() for each in columns)
        assert left == tuple(None if name in gone else value for name, value in zip(names, row, strict=True))
