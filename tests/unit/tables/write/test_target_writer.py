"""Rows through a writer into a real table and back, file sizes, memory, and what a failure leaves."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from jobs.records.schema.arrow_schema import rows_arrow_schema
from jobs.tables.write.column_statistics import lower_bound, upper_bound
from jobs.tables.write.datafile_json import from_json, to_json
from jobs.tables.write.projection import ProjectionError
from jobs.tables.write.table_fit import TableFit
from jobs.tables.write.target_writer import TargetWriter
from tests.unit.tables.write.conftest import Append, MakeTable

LATER = Schema(
    NestedField(1, "u", UUIDType()),
    NestedField(2, "t", TimeType(), required=True),
    NestedField(3, "f", FixedType(3)),
    NestedField(4, "s", StructType(NestedField(5, "must", UUIDType(), required=True))),
    NestedField(6, "l", ListType(7, UUIDType(), element_required=True)),
    NestedField(8, "m", MapType(9, StringType(), 10, TimeType(), value_required=False)),
)


def test_uuids_times_and_fixed_go_through_parquet(make_table: MakeTable, append: Append) -> None:
    table = make_table(LATER, "bucket(2, u)", "bucket(3, t)", "bucket(2, f)")
    ids = [UUID(int=0), UUID(int=2**127), UUID(int=2**128 - 1), None]
    rows = [
        {
            "u": u,
            "t": time(23, 59, 59, 999_999) if u else time(0),
            "f": u and u.bytes[:3],
            "s": u and {"must": u},
            "l": [u, u] if u else None,
            "m": [("a", time(1)), ("b", None)] if u else [],
        }
        for u in ids
    ]
    stored = pa.array(
        [
            {
                **row,
                "u": row["u"] and row["u"].bytes,
                "s": row["s"] and {"must": row["s"]["must"].bytes},
                "l": row["l"] and [u.bytes for u in row["l"]],
            }
            for row in rows
        ],
        pa.struct(list(rows_arrow_schema(LATER))),
    )
    batch = pa.RecordBatch.from_struct_array(stored)
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(TableFit(table.schema(), table.spec()).apply(batch))
    files = [
        from_json(json.loads(json.dumps(to_json(file, table.metadata))), table.metadata) for file in writer.close()
    ]
    append(table, files)
    found = table.refresh().scan().to_arrow().to_pylist()
    assert sorted(map(str, found)) == sorted(map(str, rows))
    for file in files:
        # Of uuids nothing that a reader may compare: see jobs.tables.write.table_creation.
        assert {1, 5, 7}.isdisjoint(file.lower_bounds) and {1, 5, 7}.isdisjoint(file.null_value_counts)
        assert file.lower_bounds.keys() >= {2} and file.value_counts[1] == file.record_count
        footer = pq.read_metadata(file.file_path.removeprefix("file://"))
        chunk = footer.row_group(0).column(0)
        assert chunk.path_in_schema == "u" and not chunk.is_stats_set
        assert not {"PLAIN_DICTIONARY", "RLE_DICTIONARY"} & set(chunk.encodings)


def test_fixed_bounds_are_cut_as_those_of_binary_are() -> None:
    assert lower_bound(FixedType(4), b"abcd", 2) == b"ab"
    assert upper_bound(FixedType(4), b"abcd", 2) == b"ac"
    assert upper_bound(FixedType(2), b"\xff\xff", 1) is None
    assert lower_bound(UUIDType(), bytes(16), None) is None


WIDE = Schema(
    NestedField(1, "id", StringType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "large", LongType()),
    NestedField(5, "single", FloatType()),
    NestedField(6, "double", DoubleType()),
    NestedField(7, "amount", DecimalType(12, 2)),
    NestedField(8, "huge", DecimalType(38, 6)),
    NestedField(9, "day", DateType()),
    NestedField(10, "at", TimestampType()),
    NestedField(11, "at_utc", TimestamptzType()),
    NestedField(12, "raw", BinaryType()),
    NestedField(
        13,
        "who",
        StructType(
            NestedField(14, "name", StringType(), required=True),
            NestedField(15, "home", StructType(NestedField(16, "city", StringType()))),
        ),
    ),
    NestedField(17, "tags", ListType(18, StringType(), element_required=False)),
    NestedField(
        19, "lines", ListType(20, StructType(NestedField(21, "n", IntegerType(), required=True)), element_required=True)
    ),
    NestedField(22, "attributes", MapType(23, StringType(), 24, LongType(), value_required=False)),
    NestedField(25, "odd name-é", StringType()),
)

ROWS: list[dict[str, Any]] = [
    {
        "id": "a",
        "flag": True,
        "small": -(2**31),
        "large": 2**63 - 1,
        "single": 1.5,
        "double": -0.1,
        "amount": Decimal("-9999999999.99"),
        "huge": Decimal("99999999999999999999999999999999.999999"),
        "day": date(1969, 12, 31),
        "at": datetime.fromisoformat("9999-12-31T23:59:59.999999"),
        "at_utc": datetime(1, 1, 1, tzinfo=UTC),
        "raw": b"\x00\xff",
        "who": {"name": "Ana", "home": {"city": "São Paulo"}},
        "tags": ["x", None, ""],
        "lines": [{"n": 1}, {"n": 2}],
        "attributes": [("k", 1), ("l", None)],
        "odd name-é": "yes",
    },
    {"id": "b", **{field.name: None for field in WIDE.fields[1:]}},
    {
        "id": "",
        "flag": False,
        "small": 0,
        "large": -1,
        "single": 0.0,
        "double": 1e300,
        "amount": Decimal("0.01"),
        "huge": Decimal("-0.000001"),
        "day": date(2024, 2, 29),
        "at": datetime.fromisoformat("1970-01-01"),
        "at_utc": datetime(2024, 2, 29, 12, tzinfo=UTC),
        "raw": b"",
        "who": {"name": "", "home": None},
        "tags": [],
        "lines": [],
        "attributes": [],
        "odd name-é": "",
    },
]

ARROW = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("amount", pa.decimal128(12, 2)),
        ("huge", pa.decimal128(38, 6)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("at_utc", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        (
            "who",
            pa.struct([pa.field("name", pa.string(), nullable=False), ("home", pa.struct([("city", pa.string())]))]),
        ),
        ("tags", pa.list_(pa.string())),
        ("lines", pa.list_(pa.field("item", pa.struct([pa.field("n", pa.int32(), nullable=False)]), nullable=False))),
        ("attributes", pa.map_(pa.string(), pa.int64())),
        ("odd name-é", pa.string()),
    ]
)


def rows_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=ARROW)


def read(table: Table) -> list[dict[str, Any]]:
    """The rows as PyIceberg reads them, except that it reads a null list of structs as an empty one."""
    rows = table.refresh().scan().to_arrow().to_pylist()
    lines = {
        row["id"]: row["lines"]
        for task in table.scan().plan_files()
        for row in pq.ParquetFile(task.file.file_path.removeprefix("file://")).read(["id", "lines"]).to_pylist()
    }
    return [row | {"lines": lines[row["id"]]} for row in rows]


def by_id(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: row["id"])


SMALL = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "part", IntegerType()),
    NestedField(3, "text", StringType()),
)


def numbers(start: int, count: int, parts: int, width: int = 20) -> pa.RecordBatch:
    random = np.random.default_rng(start)
    return pa.record_batch(
        {
            "id": pa.array(np.arange(start, start + count)),
            "part": pa.array(random.integers(0, parts, count).astype(np.int32)),
            "text": pa.array([random.bytes(width // 2).hex() for _ in range(count)]),
        }
    )


def landed(table: Table) -> list[int]:
    return sorted(table.refresh().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())


def files_below(table: Table) -> list[Path]:
    return sorted(Path(table.location().removeprefix("file://")).glob("data/**/*.parquet"))


def test_every_type_reads_back_as_written(make_table: MakeTable, append: Append) -> None:
    table = make_table(WIDE)
    writer = TargetWriter(table.metadata, table.io, file_prefix="b7")
    writer.write(rows_of(ROWS[:2]))
    writer.write(rows_of(ROWS[2:]))
    files = writer.close()
    append(table, files)
    assert by_id(read(table)) == by_id(ROWS)
    assert len(files) == 1
    assert files[0].record_count == 3
    (path,) = files_below(table)
    assert path.stat().st_size == files[0].file_size_in_bytes
    assert path.name.startswith("b7-00000-")


def test_required_field_in_a_null_struct_and_a_slice(make_table: MakeTable, append: Append) -> None:
    """Arrow's Parquet writer refuses such rows as they come from a decoder; slices move offsets and bitmaps."""
    table = make_table(WIDE)
    many = [dict(row, id=f"{i}-{row['id']}") for i in range(50) for row in ROWS]
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    batch = rows_of(many)
    writer.write(batch.slice(1, 70))
    writer.write(batch.slice(71))
    append(table, writer.close())
    assert by_id(read(table)) == by_id(many[1:])


def test_files_are_ordinary_iceberg_parquet(make_table: MakeTable) -> None:
    table = make_table(WIDE)
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(rows_of(ROWS))
    writer.close()
    (path,) = files_below(table)
    file = pq.ParquetFile(path)
    text = str(file.schema)
    for field_id in range(1, 26):
        assert f"field_id={field_id} " in text
    assert "required binary field_id=1 id (String)" in text
    assert "optional int64 field_id=7 amount (Decimal(precision=12, scale=2))" in text
    assert "fixed_len_byte_array(16) field_id=8 huge" in text
    assert "odd_x20name_x2Dé" in text  # as Iceberg for Java writes it
    for i in range(file.metadata.num_columns):
        assert file.metadata.row_group(0).column(i).compression == "ZSTD"
    assert b"ARROW:schema" not in (file.metadata.metadata or {})


def test_missing_optional_columns_are_null_and_wider_types_fit(make_table: MakeTable, append: Append) -> None:
    table = make_table(WIDE)
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(
        pa.record_batch(
            {
                "large": pa.array([1, None], pa.int32()),
                "double": pa.array([0.5, None], pa.float32()),
                "amount": pa.array([Decimal("1.20"), None], pa.decimal128(5, 2)),
                "id": pa.array(["a", "b"]).dictionary_encode(),
                "at": pa.array([datetime.fromisoformat("2024-01-01"), None], pa.timestamp("s")),
                "at_utc": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None], pa.timestamp("us", "America/Sao_Paulo")),
                "raw": pa.array([b"x", None], pa.large_binary()),
            }
        )
    )
    append(table, writer.close())
    first, second = by_id(read(table))
    assert (first["large"], first["double"], first["amount"]) == (1, 0.5, Decimal("1.20"))
    assert first["at"] == datetime.fromisoformat("2024-01-01")
    assert first["at_utc"] == datetime(2024, 1, 1, tzinfo=UTC)
    assert first["raw"] == b"x"
    assert first["who"] is None
    assert second == {"id": "b", **{field.name: None for field in WIDE.fields[1:]}}


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": pa.array([None], pa.string())}, "`id` is required"),
        ({"flag": pa.array([True])}, "`id` is required"),
        ({"id": ["a"], "unknown": [1]}, "no column `unknown`"),
        ({"id": ["a"], "ID": ["a"]}, "no column `ID`"),
        ({"id": ["a"], "small": pa.array([1], pa.int64())}, "`small` of the rows is int64"),
        ({"id": ["a"], "large": pa.array([1.5])}, "`large` of the rows is double"),
        ({"id": ["a"], "single": pa.array([0.1], pa.float64())}, "`single` of the rows is double"),
        ({"id": ["a"], "at": pa.array([0], pa.timestamp("us", "UTC"))}, "`at` of the rows is timestamp"),
        ({"id": ["a"], "at_utc": pa.array([0], pa.timestamp("us"))}, "`at_utc` of the rows is timestamp"),
        ({"id": ["a"], "at": pa.array([1], pa.timestamp("ns"))}, "`at` does not fit"),
        ({"id": ["a"], "amount": pa.array([Decimal("1.234")])}, "`amount` of the rows is decimal128"),
        ({"id": ["a"], "raw": ["text"]}, "`raw` of the rows is string"),
        ({"id": ["a"], "who": [{"name": None}]}, "`who.name` is required"),
        ({"id": ["a"], "who": [{"home": None}]}, "`who.name` is required"),
        ({"id": ["a"], "who": [{"name": "x", "age": 1}]}, "no column `who.age`"),
        ({"id": ["a"], "lines": [[{"n": None}]]}, "`lines\\[\\].n` "),
        ({"id": ["a"], "lines": [[None]]}, "`lines\\[\\]"),
    ],
)
def test_what_would_change_or_lose_a_value_is_refused(
    make_table: MakeTable, columns: dict[str, Any], said: str
) -> None:
    table = make_table(WIDE)
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    with pytest.raises(ProjectionError, match=said):
        writer.write(pa.record_batch(columns))
    assert writer.abort() == []
    assert files_below(table) == []


def test_nothing_written_is_no_file(make_table: MakeTable) -> None:
    table = make_table(SMALL, "part")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(numbers(0, 5, 2).slice(0, 0))
    assert writer.close() == []
    assert files_below(table) == []
    with pytest.raises(RuntimeError):
        writer.write(numbers(0, 5, 2))


def test_files_roll_at_their_compressed_size(make_table: MakeTable, append: Append) -> None:
    target = 200_000
    table = make_table(SMALL, **{"write.target-file-size-bytes": str(target)})
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    for start in range(0, 100_000, 5_000):
        writer.write(numbers(start, 5_000, 1, width=40))
    files = writer.close()
    append(table, files)
    assert len(files) > 5
    for file in files[:-1]:
        assert 0.6 * target < file.file_size_in_bytes < 1.6 * target
    assert len(files[0].split_offsets or []) >= 1
    assert landed(table) == list(range(100_000))


def test_many_partitions_within_open_files_and_memory(make_table: MakeTable, append: Append) -> None:
    table = make_table(SMALL, "part")
    budget = 400_000
    writer = TargetWriter(table.metadata, table.io, file_prefix="x", max_open=8, memory_budget=budget)
    most_open = most_bytes = 0
    total = 0
    for start in range(0, 60_000, 2_000):
        batch = numbers(start, 2_000, 500)
        total += batch.nbytes
        writer.write(batch)
        most_open = max(most_open, writer.open_files)
        most_bytes = max(most_bytes, writer.buffered_bytes)
    files = writer.close()
    append(table, files)
    assert total > 2 * budget
    assert 0 < most_open <= 8
    assert most_bytes <= budget
    assert writer.open_files == 0
    assert {file.partition[0] for file in files} == set(range(500))
    assert landed(table) == list(range(60_000))
    for file in files:
        assert f"/part={file.partition[0]}/" in file.file_path


def test_partitions_that_fit_in_memory_make_one_file_each(make_table: MakeTable) -> None:
    table = make_table(SMALL, "part")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x", max_open=2)
    for start in range(0, 20_000, 1_000):
        writer.write(numbers(start, 1_000, 100))
        assert writer.open_files == 0
    files = writer.close()
    assert len(files) == 100
    assert sum(file.record_count for file in files) == 20_000


def test_a_batch_above_the_budget_goes_through(make_table: MakeTable, append: Append) -> None:
    table = make_table(SMALL, "part")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x", memory_budget=10_000)
    writer.write(numbers(0, 5_000, 3, width=200))
    assert writer.buffered_bytes <= 10_000
    append(table, writer.close())
    assert landed(table) == list(range(5_000))


def test_a_single_row_above_the_budget_goes_through(make_table: MakeTable, append: Append) -> None:
    table = make_table(SMALL)
    writer = TargetWriter(table.metadata, table.io, file_prefix="x", memory_budget=1_000)
    writer.write(pa.record_batch({"id": [1, 2], "text": ["x" * 1_000_000, "y"]}))
    append(table, writer.close())
    assert landed(table) == [1, 2]


@pytest.mark.parametrize("closed", [False, True])
def test_abort_removes_every_file(make_table: MakeTable, closed: bool) -> None:
    table = make_table(SMALL, "part")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x", max_open=3, memory_budget=20_000)
    for start in range(0, 5_000, 500):
        writer.write(numbers(start, 500, 20))
    assert len(files_below(table)) > 3
    if closed:
        writer.close()
    assert writer.abort() == []
    assert files_below(table) == []
    assert writer.abort() == []
    with pytest.raises(RuntimeError):
        writer.close()


def test_abort_after_a_failed_write_leaves_nothing(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(SMALL, "part")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x", memory_budget=20_000)
    real = pq.ParquetWriter.write_table
    calls = 0

    def failing(self: pq.ParquetWriter, *args: Any, **kwargs: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 7:
            raise OSError(28, "No space left on device")
        real(self, *args, **kwargs)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", failing)

    def write_all() -> None:
        for start in range(0, 50_000, 500):
            writer.write(numbers(start, 500, 20))

    with pytest.raises(OSError, match="No space left"):
        write_all()
    assert files_below(table) != []
    assert writer.abort() == []
    assert files_below(table) == []


def test_abort_says_what_it_could_not_delete(make_table: MakeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make_table(SMALL)
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(numbers(0, 10, 1))
    (file,) = writer.close()

    def refuse(location: object) -> None:
        raise PermissionError(location)

    monkeypatch.setattr(writer._io, "delete", refuse)
    assert writer.abort() == [file.file_path]


def test_dictionaries_only_where_values_repeat(make_table: MakeTable) -> None:
    table = make_table(SMALL)
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(numbers(0, 10_000, 4))
    writer.close()
    group = pq.ParquetFile(files_below(table)[0]).metadata.row_group(0)
    assert [group.column(i).has_dictionary_page for i in range(3)] == [False, True, False]


@pytest.mark.parametrize("codec", ["snappy", "gzip", "uncompressed", "zstd", "lz4"])
def test_codecs_of_the_table(make_table: MakeTable, append: Append, codec: str) -> None:
    table = make_table(
        SMALL, **{"write.parquet.compression-codec": codec, "write.parquet.row-group-size-bytes": "1000"}
    )
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(numbers(0, 100, 4))
    append(table, writer.close())
    assert landed(table) == list(range(100))
    assert pq.ParquetFile(files_below(table)[0]).metadata.num_row_groups > 1


def test_object_store_layout_is_followed(make_table: MakeTable, append: Append) -> None:
    table = make_table(SMALL, "part", **{"write.object-storage.enabled": "true"})
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    writer.write(numbers(0, 10, 2))
    files = writer.close()
    append(table, files)
    relative = files[0].file_path.removeprefix(table.location())
    assert len(relative.split("/")) > 5
    assert landed(table) == list(range(10))


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
def test_zeros_of_both_signs_are_two_partitions(kind: FloatType | DoubleType, make_table: MakeTable) -> None:
    table = make_table(Schema(NestedField(1, "c", kind)), "c")
    writer = TargetWriter(table.metadata, table.io, file_prefix="x")
    for zeros in ([0.0, -0.0, None], [-0.0, -0.0]):
        writer.write(pa.record_batch({"c": pa.array(zeros, pa.float32() if kind == FloatType() else pa.float64())}))
    found = {
        repr(file.partition[0]): pq.read_table(file.file_path.removeprefix("file://"))["c"].to_pylist()
        for file in writer.close()
    }
    assert {key: repr(rows) for key, rows in found.items()} == {
        "0.0": "[0.0]",
        "-0.0": "[-0.0, -0.0, -0.0]",
        "None": "[None]",
    }
