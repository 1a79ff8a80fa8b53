"""Writer of one table's data files in a task, within a memory budget."""

from __future__ import annotations

import contextlib
import itertools
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record

from jobs.tables.write.parquet_file import (
    MIB,
    SAMPLE_ROWS,
    FileLayout,
    FileSizing,
    ParquetFile,
    dictionary_columns,
    first_rows,
)
from jobs.tables.write.partitioning import partition_key, split_by_partition
from jobs.tables.write.pyiceberg_files import PartitionDirectory, locations
from jobs.tables.write.table_fit import TableFit

log = logging.getLogger(__name__)

# Rows are split by partition in lots: single blocks of ten thousand rows over a hundred partitions would leave slivers.
SPLIT_ROWS = 65_536


@dataclass(slots=True)
class _Destination:
    """A partition: rows not yet in a file, and the file if one is open."""

    values: Record
    pending: list[pa.RecordBatch] = field(default_factory=list)
    pending_bytes: int = 0
    pending_rows: int = 0
    file: ParquetFile | None = None

    @property
    def written(self) -> int:
        return self.file.size if self.file is not None else 0


class TargetWriter:
    """Writes rows to new data files of a table and describes them for a commit. One per task and table; one thread.

    Rows are held as Arrow until a row group is full or the budget is used up. Then the partition with the most bytes is
    written, and only then its file is opened. To open more than `max_open` files, the largest is finished.

    Args:
        metadata: The table's metadata in the task.
        file_prefix: Start of the file names, such as the batch and the task's attempt.
        memory_budget: Most bytes of held rows, as Arrow counts them. The current batch comes on top.

    Raises:
        ValueError: `max_open` or `memory_budget` is below 1.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        io: FileIO,
        *,
        file_prefix: str,
        max_open: int = 64,
        memory_budget: int = 128 * MIB,
    ) -> None:
        if max_open < 1 or memory_budget < 1:
            raise ValueError("max_open and memory_budget must be at least 1")
        self._io: FileIO = io
        self._prefix: str = file_prefix
        self._max_open: int = max_open
        self._budget: int = memory_budget
        self._spec: PartitionSpec = metadata.spec()
        self._fit: TableFit = TableFit(metadata.schema(), self._spec)
        self._layout: FileLayout = FileLayout.of(metadata, self._fit.file_schema, self._fit.target)
        self._locations = locations(metadata)
        self._sizing: FileSizing = FileSizing(metadata, memory_budget)
        self._numbers: Iterator[int] = itertools.count()
        self._staged: list[pa.RecordBatch] = []
        self._staged_rows: int = 0
        self._staged_bytes: int = 0
        self._destinations: dict[tuple[object, ...], _Destination] = {}
        self._pending_bytes: int = 0
        self._open: int = 0
        self._dictionary: list[str] | None = None
        self._finished: list[DataFile] = []
        self._paths: list[str] = []
        self._ended: bool = False

    @property
    def open_files(self) -> int:
        """Files open at the moment."""
        return self._open

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows that are in no file yet."""
        return self._pending_bytes + self._staged_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows with the table's column names; optional columns may be missing.

        Raises:
            ProjectionError: The table cannot hold the rows as they are.
            OSError: A file cannot be written. Call `abort`.
        """
        self.add(self.fit(batch))

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the table's form; nothing is taken. Raises as `TableFit.apply` does."""
        return self._fit.apply(batch)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that `fit` has made. Raises OSError as `write` does."""
        self._check_open()
        # A batch of large records is taken in parts that fit a row group.
        parts = min(max(1, -(-rows.nbytes // self._sizing.group_bytes)), max(rows.num_rows, 1))
        step = max(1, -(-rows.num_rows // parts))
        for start in range(0, rows.num_rows, step):
            part = rows if parts == 1 else rows.slice(start, step)
            if self._spec.is_unpartitioned():
                self._add(Record(), part)
            else:
                self._stage(part)
            self._keep_within_budget()

    def close(self) -> list[DataFile]:
        """Write the held rows and finish all files.

        Returns:
            The files in the order in which they were finished, none of them empty.

        Raises:
            OSError: A file cannot be written. Call `abort`.
        """
        self.flush()
        self._ended = True
        return list(self._finished)

    def flush(self) -> None:
        """Write the held rows and finish all files; later rows go into new ones. Raises OSError as `write` does."""
        self._check_open()
        self._split_staged()
        for destination in sorted(self._destinations.values(), key=lambda one: one.file is None):
            if destination.pending:
                self._write_row_group(destination)
            self._finish(destination)
        self._destinations.clear()

    def abort(self) -> list[str]:
        """Delete every file written, finished or not. May be called at any time, also after `close`.

        Returns:
            Files that could not be deleted; nothing references them, and orphan removal deletes them.
        """
        self._ended = True
        for destination in self._destinations.values():
            if destination.file is not None:
                destination.file.discard()
        self._destinations.clear()
        self._staged.clear()
        self._finished.clear()
        self._open = self._pending_bytes = self._staged_rows = self._staged_bytes = 0
        left: list[str] = []
        for path in self._paths:
            try:
                with contextlib.suppress(FileNotFoundError):
                    self._io.delete(path)
            except Exception as problem:
                log.warning("could not delete %s: %s", path, problem)
                left.append(path)
        self._paths.clear()
        return left

    def _check_open(self) -> None:
        if self._ended:
            raise RuntimeError("the writer is closed")

    def _stage(self, rows: pa.RecordBatch) -> None:
        self._staged.append(rows)
        self._staged_rows += rows.num_rows
        self._staged_bytes += rows.nbytes
        if self._staged_rows >= SPLIT_ROWS or self._staged_bytes >= self._sizing.group_bytes:
            self._split_staged()

    def _split_staged(self) -> None:
        staged, self._staged = self._staged, []
        self._staged_rows = self._staged_bytes = 0
        if not staged:
            return
        for lot in pa.Table.from_batches(staged).combine_chunks().to_batches():
            for values, rows in split_by_partition(lot, self._spec, self._fit.file_schema):
                self._add(values, rows)

    def _add(self, values: Record, rows: pa.RecordBatch) -> None:
        key = partition_key(values)
        destination = self._destinations.get(key)
        if destination is None:
            destination = self._destinations[key] = _Destination(values)
        size = rows.nbytes
        if destination.pending_bytes and destination.pending_bytes + size > self._sizing.next_group(
            destination.written
        ):
            self._write_row_group(destination)
        destination.pending.append(rows)
        destination.pending_rows += rows.num_rows
        destination.pending_bytes += size
        self._pending_bytes += size
        full = destination.pending_bytes >= self._sizing.next_group(destination.written)
        if full or destination.pending_rows >= self._sizing.group_rows:
            self._write_row_group(destination)

    def _keep_within_budget(self) -> None:
        if self.buffered_bytes > self._budget:
            self._split_staged()
        while self._pending_bytes > self._budget:
            self._write_row_group(max(self._destinations.values(), key=lambda one: one.pending_bytes))

    def _write_row_group(self, destination: _Destination) -> None:
        file = destination.file or self._start(destination)
        before = file.size
        file.write_row_group(destination.pending)
        self._sizing.learn(destination.pending_bytes, file.size - before)
        self._pending_bytes -= destination.pending_bytes
        destination.pending = []
        destination.pending_bytes = destination.pending_rows = 0
        if self._sizing.is_full(file.size):
            self._finish(destination)

    def _start(self, destination: _Destination) -> ParquetFile:
        if self._open >= self._max_open:
            self._finish(max(self._destinations.values(), key=lambda one: (one.file is not None, one.written)))
        directory = None
        if not self._spec.is_unpartitioned():
            directory = PartitionDirectory(destination.values, self._spec, self._fit.file_schema)
        name = f"{self._prefix}-{next(self._numbers):05d}-{uuid.uuid4()}.parquet"
        path = self._locations.new_data_location(name, directory)
        # Recorded before the file exists, so that `abort` always finds it.
        self._paths.append(path)
        destination.file = ParquetFile(
            self._layout, self._io, path, destination.values, self._dictionary_for(destination)
        )
        self._open += 1
        return destination.file

    def _dictionary_for(self, destination: _Destination) -> list[str]:
        """Columns for a dictionary, decided once by the first sample that is large enough."""
        if self._dictionary is not None:
            return self._dictionary
        sample = first_rows(destination.pending)
        chosen = dictionary_columns(self._layout, sample)
        if sample.num_rows == SAMPLE_ROWS:
            self._dictionary = chosen
        return chosen

    def _finish(self, destination: _Destination) -> None:
        if destination.file is None:
            return
        self._finished.append(destination.file.finish())
        destination.file = None
        self._open -= 1
