"""Statistics: equal to PyIceberg's where that is right, right where it is not, and of use to a scan."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from jobs.tables.write.column_statistics import leaves, lower_bound, upper_bound
from jobs.tables.write.target_writer import TargetWriter
from tests.unit.tables.write.conftest import Append, MakeTable

FLAT = Schema(
    NestedField(1, "number", IntegerType()),
    NestedField(2, "long", LongType()),
    NestedField(3, "double", DoubleType()),
    NestedField(4, "amount", DecimalType(12, 2)),
    NestedField(5, "huge", DecimalType(30, 2)),
    NestedField(6, "day", DateType()),
    NestedField(7, "at", TimestampType()),
    NestedField(8, "at_utc", TimestamptzType()),
    NestedField(9, "text", StringType()),
    NestedField(10, "raw", BinaryType()),
    NestedField(11, "empty", StringType()),
)


def write(table: Table, *batches: pa.RecordBatch, **options: Any) -> list[DataFile]:
    writer = TargetWriter(table.metadata, table.io, file_prefix="x", **options)
    for batch in batches:
        writer.write(batch)
    return writer.close()


def flat_rows(start: int, count: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    return pa.record_batch(
        {
            "number": pa.array(numbers, pa.int32()),
            "long": [None if n % 3 else n * 10**12 for n in numbers],
            "double": [n / 7 for n in numbers],
            "amount": pa.array([Decimal(n - 500).scaleb(-2) for n in numbers], pa.decimal128(12, 2)),
            "huge": pa.array([Decimal(n - 500) * 10**20 for n in numbers], pa.decimal128(30, 2)),
            "day": [date(1969, 1, 1) + timedelta(days=n) for n in numbers],
            "at": pa.array(
                [datetime.fromisoformat("1969-12-31") + timedelta(hours=n) for n in numbers], pa.timestamp("us")
            ),
            "at_utc": pa.array(
                [datetime(2024, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in numbers], pa.timestamp("us", "UTC")
            ),
            "text": [f"a text longer than sixteen {n:05d}" if n % 2 else f"{n:05d}" for n in numbers],
            "raw": pa.array([bytes([255] * 20) if n == start else struct.pack(">i", n) for n in numbers]),
        }
    )


@pytest.mark.parametrize("mode", ["truncate(16)", "truncate(3)", "full", "counts", "none"])
def test_equal_to_pyicebergs(make_table: MakeTable, mode: str) -> None:
    extra = {"write.metadata.metrics.default": mode, "write.metadata.metrics.column.text": "truncate(2)"}
    table = make_table(FLAT, **extra, **{"write.parquet.row-group-limit": "300"})
    (file,) = write(table, flat_rows(0, 300), flat_rows(300, 300), flat_rows(600, 1))
    footer = pq.read_metadata(file.file_path.removeprefix("file://"))
    assert footer.num_row_groups == 3
    theirs = data_file_statistics_from_parquet_metadata(
        footer,
        compute_statistics_plan(table.schema(), table.metadata.properties),
        parquet_path_to_id_mapping(table.schema()),
    ).to_serialized_dict()
    assert file.record_count == 601 == theirs["record_count"]
    assert file.column_sizes == theirs["column_sizes"]
    assert file.value_counts == theirs["value_counts"]
    assert file.null_value_counts == theirs["null_value_counts"]
    assert file.lower_bounds == theirs["lower_bounds"]
    assert file.upper_bounds == theirs["upper_bounds"]
    assert file.split_offsets == theirs["split_offsets"]
    assert len(file.lower_bounds[9]) == 2
    assert (1 in file.value_counts) == (mode != "none")
    assert (1 in file.lower_bounds) == (mode not in ("none", "counts"))


def test_counts_for_every_leaf_and_bounds_within_structs(make_table: MakeTable) -> None:
    schema = Schema(
        NestedField(1, "s", StructType(NestedField(2, "n", LongType()), NestedField(3, "t", StringType()))),
        NestedField(4, "l", ListType(5, LongType(), False)),
        NestedField(6, "m", MapType(7, StringType(), 8, LongType(), False)),
    )
    table = make_table(schema, **{"write.metadata.metrics.column.s.t": "counts"})
    batch = pa.RecordBatch.from_pylist(
        [
            {"s": {"n": 5, "t": "x"}, "l": [1, None], "m": [("k", 1)]},
            {"s": None, "l": None, "m": None},
            {"s": {"n": -5, "t": None}, "l": [], "m": []},
        ],
        schema=pa.schema(
            [
                ("s", pa.struct([("n", pa.int64()), ("t", pa.string())])),
                ("l", pa.list_(pa.int64())),
                ("m", pa.map_(pa.string(), pa.int64())),
            ]
        ),
    )
    ids = {leaf.path: leaf.field_id for leaf in leaves(table.schema())}
    (file,) = write(table, batch)
    n, t, element = ids["s.n"], ids["s.t"], ids["l.list.element"]
    assert set(file.value_counts) == set(file.null_value_counts) == set(ids.values())
    assert (file.value_counts[n], file.null_value_counts[n]) == (3, 1)
    assert (file.value_counts[t], file.null_value_counts[t]) == (3, 2)
    assert file.value_counts[element] == 4
    assert set(file.lower_bounds) == set(file.upper_bounds) == {n}
    assert from_bytes(LongType(), file.lower_bounds[n]) == -5
    assert from_bytes(LongType(), file.upper_bounds[n]) == 5


def test_a_row_group_without_bounds_leaves_the_file_without(make_table: MakeTable, append: Append) -> None:
    """Arrow writes no bounds for values past 4 KiB: bounds of the other row groups would hide that one's rows."""
    schema = Schema(NestedField(1, "text", StringType()))
    table = make_table(schema, **{"write.parquet.row-group-limit": "1"})
    batches = [pa.record_batch({"text": [text]}) for text in ("m", "z" * 5000, "n")]
    (file,) = write(table, *batches)
    assert file.lower_bounds == file.upper_bounds == {}
    assert file.null_value_counts == {1: 0}
    append(table, [file])
    assert table.refresh().scan(row_filter=f"text = '{'z' * 5000}'").to_arrow().num_rows == 1


def test_a_row_group_of_nulls_needs_no_bounds(make_table: MakeTable) -> None:
    schema = Schema(NestedField(1, "n", LongType()))
    table = make_table(schema, **{"write.parquet.row-group-limit": "1"})
    (file,) = write(table, *[pa.record_batch({"n": pa.array([n], pa.int64())}) for n in (3, None, 2)])
    assert [from_bytes(LongType(), b[1]) for b in (file.lower_bounds, file.upper_bounds)] == [2, 3]
    assert file.null_value_counts == {1: 1}


def test_nan_is_no_bound(make_table: MakeTable) -> None:
    table = make_table(Schema(NestedField(1, "x", DoubleType())))
    (file,) = write(table, pa.record_batch({"x": [float("nan"), 1.0, -0.0]}))
    assert from_bytes(DoubleType(), file.lower_bounds[1]) == 0.0
    assert from_bytes(DoubleType(), file.upper_bounds[1]) == 1.0
    (file,) = write(table, pa.record_batch({"x": [float("nan")]}))
    assert file.lower_bounds == {}


@given(st.text(min_size=1), st.integers(1, 5))
def test_text_bounds_hold(text: str, length: int) -> None:
    raw = text.encode()
    low, high = lower_bound(StringType(), raw, length), upper_bound(StringType(), raw, length)
    assert low is not None
    assert low <= raw
    assert len(low.decode()) <= length
    if high is not None:
        assert high >= raw
        assert len(high.decode()) <= length


@given(st.binary(min_size=1), st.integers(1, 5))
def test_binary_bounds_hold(raw: bytes, length: int) -> None:
    low, high = lower_bound(BinaryType(), raw, length), upper_bound(BinaryType(), raw, length)
    assert low == raw[:length]
    assert high is None or (high >= raw and len(high) <= length)


@pytest.mark.parametrize(
    ("text", "upper"),
    [
        ("a" * 16, "a" * 16),
        ("a" * 17, "a" * 15 + "b"),
        ("\ud7ff" * 17, "\ud7ff" * 15 + "\ue000"),
        ("a" + "\U0010ffff" * 17, "b"),
        ("\U0010ffff" * 17, None),
        ("é" * 17, "é" * 15 + "ê"),
    ],
)
def test_upper_bound_of_text(make_table: MakeTable, text: str, upper: str | None) -> None:
    table = make_table(Schema(NestedField(1, "text", StringType())))
    (file,) = write(table, pa.record_batch({"text": [text]}))
    assert file.upper_bounds.get(1) == (None if upper is None else upper.encode())
    assert file.lower_bounds[1] == text[:16].encode()


@given(st.integers(-(10**38) + 1, 10**38 - 1))
def test_decimals_are_serialised_as_pyiceberg_does(unscaled: int) -> None:
    kind = DecimalType(38, 2)
    value = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -2))
    assert lower_bound(kind, unscaled, None) == upper_bound(kind, unscaled, None) == to_bytes(kind, value)


@pytest.mark.parametrize(
    ("row_filter", "files"),
    [
        ("number >= 250", 1),
        ("number = 100", 1),
        ("number < 0", 0),
        ("long is null", 3),
        ("double < 1.0", 1),
        ("amount > 4.99", 0),
        ("amount = -5.00", 1),
        ("day < '1969-02-01'", 1),
        ("at >= '1970-01-11T00:00:00'", 1),
        ("at_utc = '2024-01-01T00:00:00+00:00'", 1),
        ("text > 'b'", 0),
        ("text = '00000'", 1),
        ("empty is not null", 0),
        ("number is null", 0),
        ("number = 5 or number = 250", 2),
        ("who.n = 150", 1),
    ],
)
def test_a_scan_leaves_files_out(make_table: MakeTable, append: Append, row_filter: str, files: int) -> None:
    schema = Schema(*FLAT.fields, NestedField(12, "who", StructType(NestedField(13, "n", LongType()))))
    table = make_table(schema)
    for start in (0, 100, 200):
        rows = flat_rows(start, 100)
        who = pa.StructArray.from_arrays([pa.array(range(start, start + 100))], names=["n"])
        append(table, write(table, rows.append_column("who", who)))
    table.refresh()
    everything = table.scan().to_arrow()
    assert everything.num_rows == 300
    scan = table.scan(row_filter=row_filter)
    assert len(list(scan.plan_files())) == files
    if files == 0:
        assert scan.to_arrow().num_rows == 0


def test_partitions_are_left_out_too(make_table: MakeTable, append: Append) -> None:
    table = make_table(FLAT, "day(at_utc)", "bucket(4, text)", "truncate(100, number)")
    append(table, write(table, flat_rows(0, 300)))
    table.refresh()
    total = len(list(table.scan().plan_files()))
    scan = table.scan(row_filter="at_utc < '2024-01-02T00:00:00+00:00' and number < 100")
    assert 0 < len(list(scan.plan_files())) <= 4 < total
    assert scan.to_arrow().num_rows == 24
    assert table.scan().to_arrow().num_rows == 300
