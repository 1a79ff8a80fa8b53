"""Reading of a manifest only what health needs, and what is relied on of PyIceberg's Avro."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import DayTransform
from pyiceberg.typedef import Record

from jobs.maintenance.measure.manifest_reader import LiveFile, live_files
from tests.unit.maintenance.metadata_tables import (
    catalog_in,
    file_of,
    manifest_of,
    new_table,
)

BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "created_at_day"))
JANUARY_31 = (date(2026, 1, 31) - date(1970, 1, 1)).days


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with catalog_in(tmp_path) as made:
        yield made


@pytest.mark.parametrize("version", [1, 2])
def test_narrow_reading_agrees_with_pyiceberg(catalog: SqlCatalog, version: int) -> None:
    table = new_table(catalog, BY_DAY)
    manifest = manifest_of(table, [file_of(n, n, records=n) for n in range(1, 40)], version=version)
    assert [tuple(file) for file in live_files(table.io, manifest)] == [
        (
            int(entry.data_file.content),
            tuple(entry.data_file.partition._data),
            entry.data_file.record_count,
            entry.data_file.file_size_in_bytes,
            entry.snapshot_id,
        )
        for entry in manifest.fetch_manifest_entry(table.io)
    ]


def test_deletion_vectors_count_their_own_bytes(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_DAY)
    partition = PartitionSpec().partition_type(table.schema())
    schema = manifest_entry_schema_with_data_file(3, data_file_with_partition(partition, 3))
    vectors = [
        ManifestEntry.from_args(
            _table_format_version=3,
            status=ManifestEntryStatus.ADDED,
            data_file=DataFile.from_args(
                _table_format_version=3,
                content=DataFileContent.POSITION_DELETES,
                file_path="file:///nowhere/deletes.puffin",
                file_format="PUFFIN",
                partition=Record(),
                record_count=n,
                file_size_in_bytes=9_000,
                content_offset=4,
                content_size_in_bytes=40 + n,
            ),
        )
        for n in (1, 2)
    ]
    output = table.io.new_output(f"{table.location()}/metadata/vectors.avro")
    with AvroOutputFile[ManifestEntry](output, schema, "manifest_entry", schema) as writer:
        writer.write_block(vectors)
    manifest = ManifestFile.from_args(manifest_path=output.location, added_snapshot_id=9, manifest_length=1)
    assert live_files(table.io, manifest) == [LiveFile(1, (), 1, 41, 9), LiveFile(1, (), 2, 42, 9)]
