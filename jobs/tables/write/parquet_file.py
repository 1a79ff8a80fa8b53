"""Parquet data files: their layout, their sizes, and an open file."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import UUIDType

from jobs.tables.write.column_statistics import (
    ColumnMode,
    Leaf,
    leaves,
    statistics_of,
)
from jobs.tables.write.pyiceberg_files import metrics_mode, new_data_file, parquet_options

# A dictionary helps where values repeat. For ids or amounts it outgrows its page and is dropped; building it takes a
# third of the whole time and makes the file a fifth larger (measured on payments).
SAMPLE_ROWS = 4096
DICTIONARY_BELOW = 0.5


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Layout shared by all files written for one state of a table."""

    arrow_schema: pa.Schema
    columns: tuple[Leaf, ...]
    modes: Mapping[int, ColumnMode]
    options: Mapping[str, Any]
    spec_id: int

    @staticmethod
    def of(metadata: TableMetadata, file_schema: Schema, arrow_schema: pa.Schema) -> FileLayout:
        """The layout by the table's properties, its current schema and its default partition spec."""
        columns = tuple(leaves(file_schema))
        schema = metadata.schema()
        names = {leaf.field_id: schema.find_column_name(leaf.field_id) or leaf.path for leaf in columns}
        modes = {leaf.field_id: metrics_mode(metadata.properties, names[leaf.field_id]) for leaf in columns}
        return FileLayout(arrow_schema, columns, modes, parquet_options(metadata.properties), metadata.default_spec_id)

    @property
    def ordered_columns(self) -> list[str] | bool:
        """Paths of the columns that may have statistics; True for all, see `jobs.tables.write.table_creation`."""
        if not any(isinstance(leaf.kind, UUIDType) for leaf in self.columns):
            return True
        return [leaf.path for leaf in self.columns if not isinstance(leaf.kind, UUIDType)]


class ParquetFile:
    """An open data file, for one thread.

    Args:
        path: Location of the new file, which must not exist.
        partition: Partition values of all its rows.
        dictionary: Paths of the columns to write with a dictionary.
    """

    def __init__(self, layout: FileLayout, io: FileIO, path: str, partition: Record, dictionary: Sequence[str]) -> None:
        self.path: str = path
        self._layout: FileLayout = layout
        self._partition: Record = partition
        # The name contains a new uuid. Checking whether it exists would cost a request on an object store.
        self._stream: Any = io.new_output(path).create(overwrite=True)
        try:
            self._writer: pq.ParquetWriter = pq.ParquetWriter(
                cast(Any, self._stream),
                layout.arrow_schema,
                use_dictionary=cast(Any, list(dictionary)),
                # Iceberg requires decimals of up to 18 digits as integers.
                store_decimal_as_integer=True,
                # The Parquet schema has types and ids. A copy of Arrow's schema would only make the footer longer.
                store_schema=False,
                write_statistics=cast(Any, layout.ordered_columns),
                **layout.options,
            )
        except BaseException:
            self.discard()
            raise

    @property
    def size(self) -> int:
        """Bytes written so far, compressed."""
        return self._stream.tell()

    def write_row_group(self, batches: Sequence[pa.RecordBatch]) -> None:
        """Write all rows as one row group."""
        table = pa.Table.from_batches(batches, schema=self._layout.arrow_schema)
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def finish(self) -> DataFile:
        """Write the footer and close the file."""
        self._writer.close()
        size = self._stream.tell()
        self._stream.close()
        statistics = statistics_of(self._writer.writer.metadata, self._layout.columns, self._layout.modes)
        return new_data_file(
            path=self.path,
            size=size,
            partition=self._partition,
            spec_id=self._layout.spec_id,
            statistics=statistics,
        )

    def discard(self) -> None:
        """Close what is open, without a footer. The caller deletes the file."""
        writer: pq.ParquetWriter | None = getattr(self, "_writer", None)
        if writer is not None:
            writer.is_open = False  # The collected writer would write its footer, and fail on the closed file.
        with contextlib.suppress(Exception):
            self._stream.close()


def dictionary_columns(layout: FileLayout, rows: pa.RecordBatch) -> list[str]:
    """Paths of the columns worth a dictionary: those whose sample repeats values, and all nested ones."""
    chosen: list[str] = []
    for leaf in layout.columns:
        if isinstance(leaf.kind, UUIDType):
            continue
        if leaf.nested:
            chosen.append(leaf.path)
            continue
        values = rows.column(leaf.path)
        if len(values.unique()) <= max(1, DICTIONARY_BELOW * rows.num_rows):
            chosen.append(leaf.path)
    return chosen


def first_rows(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """A sample for the layout of a Parquet file: up to `SAMPLE_ROWS` rows from the start of one or more batches."""
    taken: list[pa.RecordBatch] = []
    missing = SAMPLE_ROWS
    for batch in batches:
        taken.append(batch.slice(0, missing))
        missing -= taken[-1].num_rows
        if missing == 0:
            break
    return taken[0] if len(taken) == 1 else pa.concat_batches(taken)


MIB = 1024 * 1024
# Assumed compressed bytes per byte in Arrow, until the first row group is written.
FIRST_RATIO = 0.3
# A file counts as full a little below its target size, to avoid a last tiny row group.
FULL = 0.95


class FileSizing:
    """Sizes of files and row groups by the table's properties; learns how much rows shrink in files.

    Args:
        memory_budget: Bytes of Arrow that a task may hold; a row group takes at most a quarter of them.
    """

    def __init__(self, metadata: TableMetadata, memory_budget: int) -> None:
        self._target: int = _property(metadata, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, 512 * MIB)
        group_bytes = _property(metadata, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, 128 * MIB)
        self.group_bytes: int = min(group_bytes, max(memory_budget // 4, 1))
        self.group_rows: int = _property(metadata, TableProperties.PARQUET_ROW_GROUP_LIMIT, 1_048_576)
        self._arrow_bytes: int = 0
        self._compressed_bytes: int = 0

    def learn(self, arrow_bytes: int, compressed_bytes: int) -> None:
        """Learn the compressed size of a row group."""
        self._arrow_bytes += arrow_bytes
        self._compressed_bytes += compressed_bytes

    def next_group(self, written: int) -> float:
        """Bytes of Arrow for the next row group, or to fill a file of `written` compressed bytes up to its target."""
        ratio = self._compressed_bytes / self._arrow_bytes if self._arrow_bytes else FIRST_RATIO
        room = max(self._target - written, (1 - FULL) * self._target)
        return min(self.group_bytes, room / max(ratio, 0.001))

    def is_full(self, written: int) -> bool:
        """Whether a file of so many compressed bytes has reached its size."""
        return written >= FULL * self._target


def _property(metadata: TableMetadata, name: str, default: int) -> int:
    return max(1, int(metadata.properties.get(name, default)))
