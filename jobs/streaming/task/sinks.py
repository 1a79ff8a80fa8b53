"""Sinks of a task: the writers of its targets, opened with their first rows, within one memory budget."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from jobs.config.values.targets import TargetSpec
from jobs.streaming.task.plan import TargetPlan
from jobs.streaming.task.tally import Tally
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.write.datafile_json import to_json
from jobs.tables.write.parquet_file import MIB
from jobs.tables.write.projection import ProjectionError, UnfitValueError
from jobs.tables.write.table_fit import TableFit
from jobs.tables.write.target_writer import TargetWriter

MEMORY_BUDGET = 128 * MIB
"""Most bytes of rows that all writers of a task hold together, as Arrow counts them."""

OPEN_FILES = 64
"""Most files that they keep open together."""


class Sink:
    """One target's writer in a task."""

    def __init__(self, plan: TargetPlan, file_prefix: str) -> None:
        self.target: TargetSpec = plan.target
        self._plan: TargetPlan = plan
        self._file_prefix: str = file_prefix
        self._metadata: TableMetadata | None = None
        self._fit: TableFit | None = None
        self._writer: TargetWriter | None = None

    @property
    def parked(self) -> bool:
        """Whether it is a placeholder of a suspended target."""
        return self._plan.parked

    @property
    def metadata(self) -> TableMetadata:
        """Metadata of the table, without its history."""
        if self._metadata is None:
            self._metadata = TableMetadataUtil.parse_raw(self._plan.metadata)
        return self._metadata

    @property
    def writer(self) -> TargetWriter:
        """The writer, which is opened at first use."""
        if self._writer is None:
            io = load_file_io(dict(self._plan.io_properties), self.metadata.location)
            self._writer = TargetWriter(self.metadata, io, file_prefix=self._file_prefix)
        return self._writer

    @property
    def buffered_bytes(self) -> int:
        """Bytes of rows that are in no file yet."""
        return self._writer.buffered_bytes if self._writer else 0

    @property
    def open_files(self) -> int:
        """Number of open files."""
        return self._writer.open_files if self._writer else 0

    def fit(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the table's form, without opening a writer. Raises as `TableFit.apply` does.

        The columns of a suspended table are unknown: its rows stay unchanged, and are fitted when they are replayed. In
        a re-execution they may be refused as in the first run, when the table was not suspended yet.
        """
        if self.parked:
            return self._judged(rows)
        if self._fit is None:
            self._fit = TableFit(self.metadata.schema(), self.metadata.spec())
        return self._fit.apply(rows)

    def _judged(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        if self._plan.fitted is None:
            return rows
        if self._fit is None:
            self._fit = TableFit(*self._plan.fitted)
        try:
            self._fit.apply(rows)
        except UnfitValueError:
            raise
        except ProjectionError:
            # A column that the table lacks altogether concerns no single record.
            pass
        return rows

    def wants(self, source: TopicPartition, offsets: np.ndarray) -> np.ndarray:
        """Which of the records the target still needs."""
        if source in self._plan.skip:
            return np.zeros(len(offsets), dtype=bool)
        floor = self._plan.floors.get(source)
        return np.ones(len(offsets), dtype=bool) if floor is None else offsets >= floor

    def count(self, tally: Tally, rows: int) -> None:
        """Count rows of a partition for this target."""
        tally.rows[self.target.name] = tally.rows.get(self.target.name, 0) + rows

    def flush(self) -> None:
        """Write the held rows, and finish all files; further rows go into new ones."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> list[str]:
        """Finish all files, and describe them as JSON."""
        if self._writer is None:
            return []
        return [msgspec.json.encode(to_json(file, self.metadata)).decode() for file in self._writer.close()]

    def abort(self) -> None:
        """Delete every file written."""
        if self._writer is not None:
            self._writer.abort()


def keep_within_budget(sinks: Iterable[Sink], budget: int = MEMORY_BUDGET, open_files: int = OPEN_FILES) -> None:
    """Flush the sinks that hold the most, until the rest is within the budget of a task."""
    open_ = [each for each in sinks if each.buffered_bytes or each.open_files]
    kept, files = sum(each.buffered_bytes for each in open_), sum(each.open_files for each in open_)
    if kept <= budget and files <= open_files:
        return
    for sink in sorted(open_, key=lambda each: each.buffered_bytes, reverse=True):
        if kept <= budget and files <= open_files:
            return
        kept, files = kept - sink.buffered_bytes, files - sink.open_files
        sink.flush()
