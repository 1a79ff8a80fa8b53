"""Files that are written nowhere: as many bytes as on a disk, and none of them there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.types import LongType, NestedField

from jobs.write.counted_files import COUNTED_FILES, CountedFiles
from jobs.write.table_creation import create_table_properties
from jobs.write.target_writer import TargetWriter


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
