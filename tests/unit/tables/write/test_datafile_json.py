"""Descriptors survive JSON."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType

from jobs.tables.write.datafile_json import DataFileJsonError, from_json, to_json
from jobs.tables.write.target_writer import TargetWriter
from tests.unit.tables.write.conftest import Append, MakeTable

FIELDS = [field.name for field in DATA_FILE_TYPE[2].fields]


def metadata_with(fields: int) -> TableMetadata:
    schema = Schema(NestedField(1, "a", LongType()))
    spec = PartitionSpec(*[PartitionField(1, 1000 + i, BucketTransform(i + 1), f"b{i}") for i in range(fields)])
    return new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t")


counts = st.none() | st.dictionaries(st.integers(1, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=4)
bounds = st.none() | st.dictionaries(st.integers(1, 2**31 - 1), st.binary(max_size=20), max_size=4)
partition_values = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(max_size=10)
    | st.floats()
    | st.binary(max_size=10)
    | st.decimals(allow_nan=False, allow_infinity=False)
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and math.isnan(one):
        return isinstance(other, float) and math.isnan(other)
    if isinstance(one, Record):
        return len(one) == len(other) and all(same(one[i], other[i]) for i in range(len(one)))
    if isinstance(one, Decimal | float):
        return type(one) is type(other) and str(one) == str(other)  # 1.0 is not 1.00 here, nor -0.0 0.0
    return type(one) is type(other) and one == other


@given(
    values=st.lists(partition_values, max_size=4),
    path=st.text(min_size=1),
    numbers=st.tuples(counts, counts, counts, counts),
    least=bounds,
    greatest=bounds,
    key=st.none() | st.binary(max_size=8),
    splits=st.none() | st.lists(st.integers(0, 2**63 - 1), max_size=3),
    sort_order=st.none() | st.integers(0, 9),
)
def test_nothing_is_lost(
    values: list[Any],
    path: str,
    numbers: tuple[Any, ...],
    least: Any,
    greatest: Any,
    key: bytes | None,
    splits: list[int] | None,
    sort_order: int | None,
) -> None:
    metadata = metadata_with(len(values))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        record_count=2**40,
        file_size_in_bytes=7,
        column_sizes=numbers[0],
        value_counts=numbers[1],
        null_value_counts=numbers[2],
        nan_value_counts=numbers[3],
        lower_bounds=least,
        upper_bounds=greatest,
        key_metadata=key,
        split_offsets=splits,
        equality_ids=None,
        sort_order_id=sort_order,
    )
    file.spec_id = metadata.default_spec_id
    document = to_json(file, metadata)
    for encoded in (json.loads(json.dumps(document)), msgspec.json.decode(msgspec.json.encode(document))):
        back = from_json(encoded, metadata)
        for name in FIELDS:
            assert same(getattr(file, name), getattr(back, name)), name
        assert back.spec_id == file.spec_id


def test_a_table_takes_what_came_back(make_table: MakeTable, append: Append) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()), NestedField(3, "text", StringType())
    )
    table = make_table(schema, "day(at)", "text")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(
        pa.record_batch(
            {
                "id": [1, 2, 3],
                "at": pa.array([0, 10**15, None], pa.int64()).cast(pa.timestamp("us")),
                "text": ["a/b", None, ""],
            }
        )
    )
    documents = json.loads(json.dumps([to_json(file, table.metadata) for file in writer.close()]))
    append(table, [from_json(document, table.metadata) for document in documents])
    assert sorted(table.refresh().scan().to_arrow()["id"].to_pylist()) == [1, 2, 3]
    assert table.scan(row_filter="text = 'a/b'").to_arrow()["id"].to_pylist() == [1]


def test_what_does_not_fit_the_table_is_refused() -> None:
    metadata = metadata_with(1)
    file = DataFile.from_args(file_path="p", file_format=FileFormat.PARQUET, partition=Record(1), record_count=1)
    file.spec_id = 0
    document = to_json(file, metadata)
    with pytest.raises(DataFileJsonError, match="format 2"):
        from_json(document | {"v": 2}, metadata)
    with pytest.raises(DataFileJsonError, match="2 fields"):
        from_json(document, metadata_with(2))
    with pytest.raises(DataFileJsonError, match="no such spec"):
        from_json(document | {"spec": 5}, metadata)
    file.partition[0] = object()
    with pytest.raises(DataFileJsonError, match="is a object"):
        to_json(file, metadata)
