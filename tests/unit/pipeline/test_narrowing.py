"""Narrowing of rows to some of their columns, held against the same done row by row in Python."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.pipeline.route import Narrowing
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.table_columns import TableColumns
from jobs.transform.columns import Columns

COLUMNS = Columns.of(
    iceberg_schema(
        parse_schema(
            "id int, s struct<a: int, b: string, t: struct<a: int, c: int>>, l list<struct<a: int, b: int>>, n int"
        )
    )
)
SMALL = st.none() | st.integers(0, 9)
STRUCT = st.none() | st.fixed_dictionaries(
    {"a": SMALL, "b": st.none() | st.text(max_size=2), "t": st.none() | st.fixed_dictionaries({"a": SMALL, "c": SMALL})}
)
LIST = st.none() | st.lists(st.none() | st.fixed_dictionaries({"a": SMALL, "b": SMALL}), max_size=3)
ROW = st.fixed_dictionaries({"id": SMALL, "s": STRUCT, "l": LIST, "n": SMALL, "_kafka_offset": SMALL})
CHOICES = [
    (["id"], {"id": None}),
    (["s.a", "n"], {"s": {"a": None}, "n": None}),
    (["s.t.c", "l.b"], {"s": {"t": {"c": None}}, "l": {"b": None}}),
    ({"drop": ["**.a"]}, {"id": None, "s": {"b": None, "t": {"c": None}}, "l": {"b": None}, "n": None}),
    ({"drop": ["l", "s.t"]}, {"id": None, "s": {"a": None, "b": None}, "n": None}),
    (["*"], {"id": None, "s": None, "l": None, "n": None}),
]


def narrowed(value: Any, shape: Any) -> Any:
    if value is None or shape is None:
        return value
    if isinstance(value, list):
        return [narrowed(each, shape) for each in value]
    return {name: narrowed(value[name], inner) for name, inner in shape.items()}


@pytest.mark.parametrize(("columns", "shape"), CHOICES)
@given(rows=st.lists(ROW, max_size=8), cut=st.integers(0, 3))
def test_rows_keep_what_is_chosen_as_it_is(columns: Any, shape: Any, rows: list[Any], cut: int) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=COLUMNS.arrow.append(pa.field("_kafka_offset", pa.int64())))
    batch, rows = batch.slice(cut), rows[cut:]
    chosen = TableColumns.model_validate({"keep": columns} if isinstance(columns, list) else columns)
    found = Narrowing(COLUMNS, chosen.of(COLUMNS)).apply(batch)
    found.validate(full=True)
    assert found.to_pylist() == [narrowed(each, shape | {"_kafka_offset": None}) for each in rows]
