"""Rows of any nested shape, sliced anyhow, come out with the same values and the table's types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType

from jobs.tables.write.projection import ProjectionError
from jobs.tables.write.table_fit import TableFit

POINT = StructType(
    NestedField(11, "x", LongType(), required=True),
    NestedField(12, "y-axis", StringType(), required=False),
)
NESTED = Schema(
    NestedField(1, "s", StructType(*POINT.fields, NestedField(13, "in", POINT), NestedField(14, "must", POINT, True))),
    NestedField(2, "l", ListType(21, StructType(*POINT.fields), element_required=True)),
    NestedField(3, "m", MapType(31, StringType(), 32, ListType(33, IntegerType(), True), value_required=True)),
)
ids = iter(range(100, 1000))


def fresh(kind: Any) -> Any:
    """A copy with ids of its own, as one struct may not stand in a schema twice."""
    if isinstance(kind, StructType):
        return StructType(*[NestedField(next(ids), f.name, fresh(f.field_type), f.required) for f in kind.fields])
    if isinstance(kind, ListType):
        return ListType(next(ids), fresh(kind.element_type), kind.element_required)
    if isinstance(kind, MapType):
        return MapType(next(ids), kind.key_type, next(ids), fresh(kind.value_type), kind.value_required)
    return kind


SCHEMA = Schema(*[NestedField(f.field_id, f.name, fresh(f.field_type), f.required) for f in NESTED.fields])

LOOSE_POINT = pa.struct([("x", pa.int32()), ("y-axis", pa.large_string())])
TIGHT_POINT = pa.struct([pa.field("x", pa.int64(), nullable=False), ("y-axis", pa.string())])


def arrow_schema(point: pa.DataType, number: pa.DataType, tight: bool) -> pa.Schema:
    fields = [*point, pa.field("in", point), pa.field("must", point, nullable=not tight)]
    return pa.schema(
        [
            ("s", pa.struct(fields)),
            ("l", pa.list_(pa.field("item", point, nullable=not tight))),
            ("m", pa.map_(pa.string(), pa.field("value", pa.list_(pa.field("e", number, not tight)), not tight))),
        ]
    )


SOURCES = (arrow_schema(LOOSE_POINT, pa.int16(), False), arrow_schema(TIGHT_POINT, pa.int32(), True))

points = st.fixed_dictionaries({"x": st.integers(-(2**31), 2**31 - 1), "y-axis": st.none() | st.text(max_size=3)})
rows = st.fixed_dictionaries(
    {
        "s": st.none()
        | st.builds(lambda p, inner, must: {**p, "in": inner, "must": must}, points, st.none() | points, points),
        "l": st.none() | st.lists(points, max_size=3),
        "m": st.none()
        | st.dictionaries(st.text(max_size=2), st.lists(st.integers(-9, 9), max_size=2), max_size=2).map(
            lambda m: list(m.items())
        ),
    }
)


def through_parquet(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, batch.schema, store_schema=False) as writer:
        writer.write_table(pa.Table.from_batches([batch]))
    return pq.read_table(pa.BufferReader(sink.getvalue())).to_pylist()


def in_file_names(value: Any) -> Any:
    if isinstance(value, dict):
        return {key.replace("-", "_x2D"): in_file_names(item) for key, item in value.items()}
    if isinstance(value, list):
        return [in_file_names(item) for item in value]
    return value


@given(st.lists(rows, max_size=12), st.integers(0, 5), st.integers(0, 12), st.sampled_from(SOURCES))
def test_values_stay_and_types_are_the_tables(
    values: list[dict[str, Any]], start: int, length: int, source: pa.Schema
) -> None:
    batch = pa.RecordBatch.from_pylist(values, schema=source).slice(start, length)
    out = TableFit(SCHEMA).apply(batch)
    out.validate(full=True)
    assert out.schema.equals(TableFit(SCHEMA).target, check_metadata=True)
    assert through_parquet(out) == in_file_names(values[start : start + length])


def test_a_batch_that_fits_is_not_copied() -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", ListType(3, StringType(), False)))
    batch = pa.record_batch({"a": pa.array([1, None]), "b": pa.array([["x"], None])})
    out = TableFit(schema).apply(batch)
    assert out.column("a").buffers()[1].address == batch.column("a").buffers()[1].address
    assert out.column("b").values.buffers()[2].address == batch.column("b").values.buffers()[2].address


def test_a_column_that_is_not_there_twice() -> None:
    schema = Schema(NestedField(1, "a", LongType()))
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ProjectionError, match="`a` twice"):
        TableFit(schema).apply(batch)


def test_missing_structs_with_required_fields_are_null() -> None:
    batch = pa.record_batch({"l": pa.nulls(3)})
    assert through_parquet(TableFit(SCHEMA).apply(batch)) == [{"s": None, "l": None, "m": None}] * 3
