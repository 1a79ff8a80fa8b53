"""What is relied on in PyIceberg's internals; a failure here after an upgrade says what to look at."""

from __future__ import annotations

import inspect
import struct
import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.reader import DoubleReader, OptionReader, StringReader, StructReader
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import _get_parquet_writer_kwargs, schema_to_pyarrow
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.locations import load_location_provider
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, ListType, LongType, MapType, NestedField, StringType, StructType

from jobs.tables.write.column_statistics import ColumnMode, ColumnStatistics
from jobs.tables.write.counted_files import COUNTED_FILES, CountedFiles
from jobs.tables.write.manifest_doubles import exact_reader
from jobs.tables.write.pyiceberg_files import (
    PartitionDirectory,
    arrow_schema_in_files,
    metrics_mode,
    new_data_file,
    parquet_options,
    schema_in_files,
)
from jobs.tables.write.table_creation import create_table_properties
from jobs.tables.write.target_writer import TargetWriter

SCHEMA = Schema(
    NestedField(1, "a-b", StringType()),
    NestedField(2, "l", ListType(3, StructType(NestedField(4, "1x", StringType(), required=True)), True)),
    NestedField(5, "m", MapType(6, StringType(), 7, LongType(), False)),
    schema_id=4,
)


def test_names_are_changed_and_ids_kept() -> None:
    changed = schema_in_files(SCHEMA)
    assert [changed.find_column_name(i) for i in range(1, 8)] == [
        "a_x2Db",
        "l",
        "l.element",
        "l.element._1x",
        "m",
        "m.key",
        "m.value",
    ]


def test_field_ids_on_every_level_and_ordinary_types() -> None:
    assert schema_to_pyarrow(Schema(NestedField(1, "a", StringType()))).field("a").type == pa.large_string()
    schema = arrow_schema_in_files(schema_in_files(SCHEMA))
    sink = pa.BufferOutputStream()
    pq.ParquetWriter(sink, schema, store_schema=False).close()
    text = str(pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema)
    assert [f"field_id={i} " in text for i in range(1, 8)] == [True] * 7
    assert schema.field("m").type == pa.map_(pa.string(), pa.int64())
    assert schema.field("l").type.value_type == pa.struct([pa.field("_1x", pa.string(), nullable=False)])


def test_writer_options_are_arrows_and_raise_no_warning() -> None:
    known = {*inspect.signature(pq.ParquetWriter.__init__).parameters, "data_page_size"}  # it goes on to C++ unnamed
    assert set(_get_parquet_writer_kwargs({})) <= known
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options = parquet_options(
            {
                "write.parquet.compression-level": "5",
                "write.parquet.row-group-size-bytes": "1",
                "write.parquet.bloom-filter-enabled.column.a": "true",
                "write.parquet.dict-size-bytes": "77",
            }
        )
    assert (options["compression"], options["compression_level"]) == ("zstd", 5)
    assert options["dictionary_pagesize_limit"] == 77
    snappy = {"write.parquet.compression-codec": "snappy", "write.parquet.compression-level": "5"}
    assert parquet_options(snappy)["compression_level"] is None


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("none", ColumnMode(False, False, None)),
        ("counts", ColumnMode(True, False, None)),
        ("full", ColumnMode(True, True, None)),
        ("truncate(5)", ColumnMode(True, True, 5)),
        ("Truncate(5) ", ColumnMode(True, True, 5)),
    ],
)
def test_metrics_modes(text: str, mode: ColumnMode) -> None:
    assert metrics_mode({"write.metadata.metrics.default": text}, "a") == mode
    assert metrics_mode({"write.metadata.metrics.column.a.b": text}, "a.b") == mode
    assert metrics_mode({"write.metadata.metrics.column.a.b": text}, "a") == ColumnMode(True, True, 16)


def test_location_providers_ask_only_for_the_path(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "a", StringType()))
    # Two fields on one column: PyIceberg's own key refuses them.
    spec = PartitionSpec(
        PartitionField(1, PARTITION_FIELD_ID_START, BucketTransform(4), "a_bucket"),
        PartitionField(1, PARTITION_FIELD_ID_START + 1, IdentityTransform(), "a"),
    )
    directory = PartitionDirectory(Record(3, "x/y z"), spec, schema)
    assert directory.partition == Record(3, "x/y z")
    provider = load_location_provider(f"file://{tmp_path}", {})
    assert provider.new_data_location("f.parquet", directory) == (
        f"file://{tmp_path}/data/a_bucket=3/a=x%2Fy+z/f.parquet"
    )


def test_data_files_know_their_spec() -> None:
    made = DataFile.from_args(file_path="p", file_format=FileFormat.PARQUET, partition=Record(), spec_id=3)
    assert not hasattr(made, "_spec_id")  # from_args drops it in silence
    file = new_data_file(path="p", size=9, partition=Record(1), spec_id=3, statistics=ColumnStatistics(5))
    assert (file.spec_id, file.record_count, file.file_size_in_bytes) == (3, 5, 9)
    assert file.file_format is FileFormat.PARQUET
    assert len(file) == 16


def test_the_bytes_are_those_of_a_real_file(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "n", LongType(), required=False))
    location = f"file://{tmp_path}/table"
    metadata = new_table_metadata(schema, PartitionSpec(), UNSORTED_SORT_ORDER, location, create_table_properties({}))
    rows = pa.RecordBatch.from_pydict({"n": list(range(10_000))})
    files = []
    for properties in (COUNTED_FILES, {}):
        assert not list(tmp_path.rglob("*.parquet"))
        writer = TargetWriter(metadata, load_file_io(properties, location), file_prefix="x")
        writer.write(rows)
        files.append(writer.close()[0])
    counted, real = files
    assert counted.file_size_in_bytes == real.file_size_in_bytes > 10_000
    assert (counted.record_count, counted.lower_bounds) == (real.record_count, real.lower_bounds)
    (there,) = tmp_path.rglob("*.parquet")
    assert there.stat().st_size == real.file_size_in_bytes


def test_nothing_is_read_back() -> None:
    files = CountedFiles()
    output = files.new_output("memory://x")
    assert (len(output), output.exists(), output.location) == (0, False, "memory://x")
    files.delete("memory://x")
    for asked in (lambda: files.new_input("memory://x"), output.to_input_file):
        with pytest.raises(FileNotFoundError):
            asked()


PARTITION = StructType(NestedField(1, "d", DoubleType()), NestedField(2, "s", StringType()))


def test_the_compiled_decoder_narrows_doubles() -> None:
    """When it does no longer, `manifest_doubles` and its use in `commit/pyiceberg_commit` can go."""
    assert new_decoder(struct.pack("<d", 0.1)).read_double() != 0.1


@given(st.floats(allow_nan=False))
def test_a_double_in_a_struct_is_read_by_its_bits(value: float) -> None:
    text = StringReader()
    whole = StructReader(((0, OptionReader(DoubleReader())), (None, DoubleReader()), (1, text)), Record, PARTITION)
    bits = struct.pack("<d", value)
    made = exact_reader(whole).read(new_decoder(b"\x02" + bits + bits + b"\x02x"))
    assert struct.pack("<d", made[0]) == bits
    assert made[1] == "x"
    assert exact_reader(text) is text
