"""Rows by partition agree with PyIceberg's row-at-a-time transforms, and the paths with what a file system takes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec, partition_record_value
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from jobs.config.values.partitioning import parse_partition_expr
from jobs.tables.write.partitioning import PartitionSpecError, partition_spec, split_by_partition
from jobs.tables.write.pyiceberg_files import PartitionDirectory
from jobs.tables.write.table_fit import TableFit
from jobs.tables.write.target_writer import TargetWriter
from tests.unit.tables.write.conftest import Append, MakeTable

WIDE = Context(prec=60)  # Python's default of 28 digits rounds what Iceberg holds

CASES: dict[str, tuple[PrimitiveType, st.SearchStrategy[Any]]] = {
    "text": (StringType(), st.text(max_size=6)),
    "number": (IntegerType(), st.integers(-(2**31) + 100, 2**31 - 1)),
    "long": (LongType(), st.integers(-(2**63) + 100, 2**63 - 1)),
    "at": (TimestampType(), st.datetimes()),
    "at_utc": (TimestamptzType(), st.datetimes(timezones=st.just(UTC))),
    "day": (DateType(), st.dates()),
    "amount": (DecimalType(9, 2), st.integers(-(10**9) + 1000, 10**9 - 1).map(lambda n: Decimal(n).scaleb(-2, WIDE))),
    "huge": (DecimalType(38, 3), st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-3, WIDE))),
    "raw": (BinaryType(), st.binary(max_size=6)),
    "flag": (BooleanType(), st.booleans()),
}
EXPRESSIONS = [
    *CASES,
    *[f"{transform}({column})" for transform in ("year", "month", "day") for column in ("at", "at_utc", "day")],
    "hour(at)",
    "hour(at_utc)",
    *[f"bucket(7, {c})" for c in ("text", "number", "long", "at", "at_utc", "day", "amount", "huge", "raw")],
    *[f"truncate(3, {column})" for column in ("text", "number", "long", "amount", "huge", "raw")],
]


def values_of(record: Record) -> tuple[Any, ...]:
    return tuple(record[i] for i in range(len(record)))


@pytest.mark.parametrize("text", EXPRESSIONS)
@settings(max_examples=40)
@given(data=st.data())
def test_partition_values_are_pyicebergs(text: str, data: st.DataObject) -> None:
    expression = parse_partition_expr(text)
    kind, strategy = CASES[expression.column]
    schema = Schema(NestedField(1, "n", IntegerType()), NestedField(2, expression.column, kind))
    spec = partition_spec([expression], schema)
    (field,) = spec.fields
    source = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=20))
    fit = TableFit(schema)
    columns = {"n": range(len(source)), expression.column: source}
    batch = pa.RecordBatch.from_pydict(columns, schema=fit.target)
    row_by_row = field.transform.transform(kind)
    found: dict[int, Any] = {}
    for record, rows in split_by_partition(batch, spec, fit.file_schema):
        assert rows.num_rows > 0
        for n in rows.column("n").to_pylist():
            found[n] = record[0]
        # Every partition value has one entry, and its path can be made.
        PartitionDirectory(record, spec, schema).to_path()
    with localcontext(WIDE):
        expected = [partition_record_value(field, row_by_row(value), schema) for value in source]
    assert [found[n] for n in range(len(source))] == expected
    assert len(split_by_partition(batch, spec, fit.file_schema)) == len(set(expected))


def test_several_fields_two_on_one_column_and_a_nested_one() -> None:
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "who", StructType(NestedField(3, "city", StringType()), NestedField(4, "n", LongType()))),
        NestedField(5, "at", TimestampType()),
    )
    texts = ["who.city", "bucket(4, id)", "truncate(10, id)", "day(at)"]
    spec = partition_spec([parse_partition_expr(text) for text in texts], schema)
    rows = [
        {"id": 1, "who": {"city": "Recife", "n": 1}, "at": datetime.fromisoformat("2024-01-01T05:00")},
        {"id": 11, "who": None, "at": None},
        {"id": 1, "who": {"city": "Recife", "n": 2}, "at": datetime.fromisoformat("2024-01-01T23:00")},
        {"id": None, "who": {"city": None, "n": 3}, "at": datetime.fromisoformat("1969-12-31")},
        {"id": 11, "who": {"city": None, "n": 4}, "at": None},
    ]
    fit = TableFit(schema)
    batch = pa.RecordBatch.from_pylist(rows, schema=fit.target)
    bucket = spec.fields[1].transform.transform(LongType())
    parts = [(values_of(record), part.to_pylist()) for record, part in split_by_partition(batch, spec, fit.file_schema)]
    assert parts == [
        (("Recife", bucket(1), 0, 19723), [rows[0], rows[2]]),
        ((None, bucket(11), 10, None), [rows[1], rows[4]]),
        ((None, None, None, -1), [rows[3]]),
    ]


def test_parts_share_no_memory() -> None:
    schema = Schema(NestedField(1, "part", IntegerType()), NestedField(2, "text", StringType()))
    spec = partition_spec([parse_partition_expr("part")], schema)
    batch = pa.record_batch({"part": pa.array([0] * 999 + [1], pa.int32()), "text": ["x" * 100] * 1000})
    (_, _), (_, small) = split_by_partition(batch, spec, schema)
    assert small.get_total_buffer_size() < 1000


def test_a_void_field_is_null() -> None:
    schema = Schema(NestedField(1, "part", IntegerType()))
    spec = PartitionSpec(PartitionField(1, 1000, VoidTransform(), "part_null"))
    ((record, rows),) = split_by_partition(pa.record_batch({"part": pa.array([1, 2], pa.int32())}), spec, schema)
    assert values_of(record) == (None,)
    assert rows.num_rows == 2


ODD = ["a/b", "..", "100%", "a b", "a+b", "é😀", "", "null", None, "a=b?c#d&e", "x" * 5000, "é" * 300, "\n\t\\", "%2F"]


def test_odd_values_make_usable_paths_and_read_back(make_table: MakeTable, append: Append) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "odd", StringType()))
    table = make_table(schema, "odd")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(pa.record_batch({"id": list(range(len(ODD))), "odd": pa.array(ODD, pa.string())}))
    files = writer.close()
    assert len({file.file_path for file in files}) == len(ODD)
    for file in files:
        relative = file.file_path.removeprefix(table.location() + "/data/")
        directory, _, _ = relative.partition("/")
        assert relative.count("/") == 1
        assert len(directory.encode()) <= 128
    append(table, files)
    table.refresh()
    rows = table.scan().to_arrow().to_pylist()
    assert sorted((row["id"], row["odd"]) for row in rows if row["odd"] is not None) == [
        (i, value) for i, value in enumerate(ODD) if value is not None
    ]
    assert [row["id"] for row in rows if row["odd"] is None] == [ODD.index(None)]
    assert table.scan(row_filter="odd = 'a/b'").to_arrow()["id"].to_pylist() == [0]
    assert len(list(table.scan(row_filter="odd = '%2F'").plan_files())) == 1


@given(st.text())
def test_a_path_component_is_short_ascii_without_a_slash(value: str) -> None:
    schema = Schema(NestedField(1, "odd", StringType()))
    spec = partition_spec([parse_partition_expr("odd")], schema)
    path = PartitionDirectory(Record(value), spec, schema).to_path()
    assert path.startswith("odd=")
    assert len(path) <= 128
    assert path.isascii()
    assert "/" not in path
    assert "%" not in path[-2:] or len(path) < 128


def test_times_past_the_year_9999_have_a_path(make_table: MakeTable) -> None:
    schema = Schema(NestedField(1, "at", TimestampType()), NestedField(2, "day", DateType()))
    batch = pa.record_batch(
        {
            "at": pa.array([2**62, -(2**62)], pa.int64()).cast(pa.timestamp("us")),
            "day": pa.array([10_000_000, -10_000_000], pa.int32()).cast(pa.date32()),
        }
    )
    for i, texts in enumerate([("at", "day"), ("day(at)", "month(day)"), ("hour(at)", "day(day)"), ("year(at)",)]):
        table = make_table(schema, *texts, name=f"far.t{i}")
        writer = TargetWriter(table.metadata, table.io, file_prefix="x")
        writer.write(batch)
        files = writer.close()
        assert len(files) == 2
        assert files[0].lower_bounds[1] == (2**62).to_bytes(8, "little")


def test_epoch_and_before() -> None:
    schema = Schema(NestedField(1, "day", DateType()))
    spec = partition_spec([parse_partition_expr("month(day)")], schema)
    batch = pa.record_batch({"day": [date(1969, 12, 31), date(1970, 1, 1), None]})
    assert [values_of(record) for record, _ in split_by_partition(batch, spec, schema)] == [(-1,), (0,), (None,)]


SCHEMA = Schema(
    NestedField(1, "text", StringType()),
    NestedField(2, "number", IntegerType()),
    NestedField(3, "long", LongType()),
    NestedField(4, "at", TimestampType()),
    NestedField(5, "at_utc", TimestamptzType()),
    NestedField(6, "day", DateType()),
    NestedField(7, "amount", DecimalType(9, 2)),
    NestedField(8, "raw", BinaryType()),
    NestedField(9, "flag", BooleanType()),
    NestedField(10, "real", DoubleType()),
    NestedField(11, "who", StructType(NestedField(12, "city", StringType()), NestedField(13, "since", DateType()))),
    NestedField(14, "tags", ListType(15, StringType(), False)),
    NestedField(16, "lines", ListType(17, StructType(NestedField(18, "sku", StringType())), False)),
    NestedField(19, "map", MapType(20, StringType(), 21, StringType(), False)),
    NestedField(22, "taken_day", StringType()),
    NestedField(23, "taken", DateType()),
)


def spec(*texts: str) -> PartitionSpec:
    return partition_spec([parse_partition_expr(text) for text in texts], SCHEMA)


def test_names_and_transforms_are_those_of_spark_unless_the_file_says_others() -> None:
    by = ("day(at)", "bucket(16, text)", "truncate(4, text)", "number", "who.city", "month(who.since)")
    made = spec(*by, "day(taken) as by_day", "long as `in`")
    assert [(field.source_id, field.field_id, str(field.transform), field.name) for field in made.fields] == [
        (4, 1000, "day", "at_day"),
        (1, 1001, "bucket[16]", "text_bucket"),
        (1, 1002, "truncate[4]", "text_trunc"),
        (2, 1003, "identity", "number"),
        (12, 1004, "identity", "who.city"),
        (13, 1005, "month", "who.since_month"),
        (23, 1006, "day", "by_day"),
        (3, 1007, "identity", "in"),
    ]
    assert spec().is_unpartitioned()


@pytest.mark.parametrize(
    "text",
    [
        *[f"{transform}({column})" for transform in ("year", "month", "day") for column in ("at", "at_utc", "day")],
        "hour(at)",
        "hour(at_utc)",
        *[f"bucket(4, {c})" for c in ("text", "number", "long", "at", "at_utc", "day", "amount", "raw")],
        *[f"truncate(4, {column})" for column in ("text", "number", "long", "amount", "raw")],
        *["text", "number", "long", "at", "at_utc", "day", "amount", "raw", "flag", "real"],
    ],
)
def test_what_iceberg_allows_is_taken(text: str) -> None:
    assert len(spec(text).fields) == 1


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["day(text)"], "Invalid source field text with type string for transform: day"),
        (["who"], "non-primitive"),
        (["tags.element"], "parent"),
        (["day(missing)"], "Could not find field with name missing"),
        (["day(taken)"], "its partition field would have the name of column taken_day"),
        (["day(taken) as taken"], "its partition field would have the name of column taken"),
        (["day(at) as number"], "its partition field would have the name of column number"),
        (["day(at)", "day(at)"], "is a second partition field named 'at_day'"),
    ],
)
def test_the_error_names_the_expression(texts: list[str], said: str) -> None:
    with pytest.raises(PartitionSpecError) as told:
        spec(*texts)
    assert texts[-1] in str(told.value)
    assert said in str(told.value)
