"""Real tables on SQLite whose data files exist in their metadata only, which is all that health looks at."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    ManifestContent,
    ManifestFile,
    ManifestWriterV2,
    write_manifest,
)
from pyiceberg.manifest import ManifestEntry as Entry
from pyiceberg.manifest import ManifestEntryStatus as Status
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestamptzType

from jobs.config.services.maintenance_policy import Policy
from jobs.maintenance.measure.health_facts import PartitionFacts, TableFacts
from jobs.tables.write.table_creation import create_table_properties

MB = 1024**2
NOW = datetime(2026, 2, 1, 12, tzinfo=UTC)
SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "created_at", TimestamptzType()),
    NestedField(3, "country", StringType()),
    NestedField(4, "due", DateType()),
    *(NestedField(10 + n, f"column_{n}", StringType()) for n in range(16)),
)
_NUMBERS = itertools.count()


@contextmanager
def catalog_in(folder: Path) -> Iterator[SqlCatalog]:
    made = SqlCatalog("test", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    made.create_namespace_if_not_exists("orders")
    yield made
    made.close()


def new_table(
    catalog: SqlCatalog,
    spec: PartitionSpec | None = None,
    *,
    name: str = "payments",
    properties: Mapping[str, str] | None = None,
) -> Table:
    return catalog.create_table(
        f"orders.{name}",
        SCHEMA,
        partition_spec=spec or PartitionSpec(),
        properties=create_table_properties(properties or {}),
    )


def file_of(
    size: int, *partition: Any, content: DataFileContent = DataFileContent.DATA, records: int = 10, spec_id: int = 0
) -> DataFile:
    """A file that is in no file system, with the statistics of some twenty columns as a writer leaves them."""
    columns = [field.field_id for field in SCHEMA.fields]
    made = DataFile.from_args(
        content=content,
        file_path=f"file:///nowhere/{next(_NUMBERS)}.parquet",
        file_format="PARQUET",
        partition=Record(*partition),
        record_count=records,
        file_size_in_bytes=size,
        column_sizes=dict.fromkeys(columns, size // len(columns)),
        value_counts=dict.fromkeys(columns, records),
        null_value_counts=dict.fromkeys(columns, 0),
        nan_value_counts={},
        lower_bounds=dict.fromkeys(columns, b"0123456789abcdef"),
        upper_bounds=dict.fromkeys(columns, b"0123456789abcdeg"),
        split_offsets=[4],
        sort_order_id=None,
        equality_ids=None,
        key_metadata=None,
    )
    made.spec_id = spec_id
    return made


def append(table: Table, files: Iterable[DataFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        for file in files:
            update.append_data_file(file)


class _Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES


def manifest_of(
    table: Table, files: Iterable[DataFile], *, version: int = 2, status: Status = Status.ADDED, snapshot_id: int = 7
) -> ManifestFile:
    """A manifest outside of every snapshot; of delete files where these are such."""
    files = list(files)
    spec = table.metadata.specs()[files[0].spec_id]
    output = table.io.new_output(f"{table.location()}/metadata/{next(_NUMBERS)}.avro")
    if files[0].content is DataFileContent.DATA:
        writer = write_manifest(1 if version == 1 else 2, spec, table.schema(), output, snapshot_id, "deflate")
    else:
        writer = _Deletes(spec, table.schema(), output, snapshot_id, "deflate")
    with writer:
        for file in files:
            writer.add_entry(
                Entry.from_args(
                    status=status,
                    snapshot_id=snapshot_id,
                    sequence_number=None if status is Status.ADDED else 1,
                    data_file=file,
                )
            )
    return writer.to_manifest_file()


def partition(*sizes: int, name: str = "", **more: Any) -> PartitionFacts:
    """A partition of data files of these sizes."""
    return PartitionFacts(spec_id=0, values=(), name=name, sizes=tuple(sorted(sizes)), records=10 * len(sizes), **more)


def table_of(*partitions: PartitionFacts, **more: Any) -> TableFacts:
    """Facts of a table of these partitions, whose totals agree with them."""
    totals: dict[str, Any] = {
        "data_files": sum(each.files for each in partitions),
        "bytes": sum(each.bytes for each in partitions),
        "records": sum(each.records for each in partitions),
        "delete_files": sum(each.delete_files for each in partitions),
        "position_deletes": sum(each.position_deletes for each in partitions),
        "equality_deletes": sum(each.equality_deletes for each in partitions),
    }
    return TableFacts(
        name="orders.payments",
        uuid="7b4e",
        format_version=2,
        spec_id=0,
        measured_at=NOW,
        partitions=partitions,
        **totals | more,
    )


def policy(**blocks: Any) -> Policy:
    """The built-in policy with these blocks over it."""
    return Policy.model_validate(blocks)
