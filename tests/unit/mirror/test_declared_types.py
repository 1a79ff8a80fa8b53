"""Declared types: which parts of a value may be null is said otherwise, and the value stays."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from jobs.mirror.declared_types import as_declared


def point(*, required: bool) -> pa.DataType:
    return pa.struct([pa.field("city", pa.string()), pa.field("at", pa.int64(), nullable=not required)])


POINTS = [None, {"city": "a", "at": 1}, {"city": None, "at": 2}, None, {"city": "c", "at": 3}]


@pytest.mark.parametrize(
    ("made", "declared", "values"),
    [
        (point(required=False), point(required=True), POINTS),
        (
            pa.list_(pa.field("element", point(required=False))),
            pa.list_(pa.field("element", point(required=True), nullable=False)),
            [[POINTS[1], POINTS[4]], None, [], [POINTS[2]]],
        ),
        (
            pa.map_(pa.string(), pa.field("value", point(required=False))),
            pa.map_(pa.string(), pa.field("value", point(required=True), nullable=False)),
            [[("x", POINTS[1])], None, [], [("y", POINTS[2]), ("z", POINTS[4])]],
        ),
    ],
)
def test_values_stay_under_the_declared_type(made: pa.DataType, declared: pa.DataType, values: list[Any]) -> None:
    array = pa.array(values, made)
    for given in (pa.chunked_array([array]), pa.chunked_array([array.slice(1), array.slice(0, 2)], made)):
        shown = as_declared(given, declared)
        assert shown.type == declared and shown.to_pylist() == given.to_pylist()
        shown.validate(full=True)
        # It is taken apart, sent and read as any other.
        table = pa.table([shown.take([1, None, 0])], schema=pa.schema([pa.field("v", declared)]))
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        back = pa.ipc.open_stream(sink.getvalue()).read_all()
        assert back.schema.field("v").type == declared
        assert back["v"].to_pylist() == given.take([1, None, 0]).to_pylist()
    assert as_declared(pa.chunked_array([], made), declared).type == declared


def test_another_type_is_not_taken_for_it() -> None:
    given = pa.chunked_array([[{"at": 1}]])
    assert as_declared(given, pa.struct([pa.field("at", pa.int32(), nullable=False)])) is given
