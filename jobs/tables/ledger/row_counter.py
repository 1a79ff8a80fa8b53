"""Counter of a table's rows by Kafka's coordinates: topic, partition, offset.

Memory is bounded by the window, not by the table: a window is some millions of offsets with a byte each. Files without
offsets of the window, by their statistics, are not opened; three columns of the others are read. `rows_in_ranges`
answers an operator's question about a few ranges, within limits.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them; of PyIceberg's
# expressions it sees pydantic's keywords only.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, LessThan, Or
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from jobs.base.errors import FrazilError
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.tables.write.data_file_rows import EqualityDeletesError, equality_deletes_named

MAX_ROWS = 50_000_000
MAX_SECONDS = 60.0

WINDOW_OFFSETS = 16_000_000
# Counts below this are exact; this one means `so many or more`.
MANY = 255
# A filter with more conditions costs more than the files that it spares.
_MAX_CONDITIONS = 24


@dataclass(frozen=True, slots=True)
class RowsInRanges:
    """Number of rows per partition.

    Attributes:
        rows: Counts; None if the rows were not counted.
        why_not: Reason why they were not counted.
    """

    rows: dict[TopicPartition, int] | None = None
    why_not: str = ""

    @property
    def total(self) -> int | None:
        """Rows of all ranges together; None if they were not counted."""
        return None if self.rows is None else sum(self.rows.values())


@dataclass(slots=True)
class _Sums:
    ranges: Mapping[TopicPartition, OffsetRange]
    rows: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, batch: pa.RecordBatch, columns: tuple[str, str, str]) -> None:
        topics, partitions, offsets = (batch.column(name) for name in columns)
        for partition, range_ in self.ranges.items():
            here = pc.and_(pc.equal(topics, partition.topic), pc.equal(partitions, partition.partition))
            inside = pc.and_(pc.greater_equal(offsets, range_.start), pc.less(offsets, range_.end))
            found = pc.sum(pc.and_(here, inside)).as_py() or 0
            self.rows[partition] = self.rows.get(partition, 0) + found


def rows_in_ranges(
    table: Table,
    columns: tuple[str, str, str],
    ranges: Mapping[TopicPartition, OffsetRange],
    *,
    stream: str | None = None,
    on_progress: Callable[[str, int, int], None] = lambda table, read, total: None,
    max_rows: int = MAX_ROWS,
    max_seconds: float = MAX_SECONDS,
) -> RowsInRanges:
    """Count the rows of a table with coordinates in the ranges; reads three columns of the files concerned.

    Args:
        columns: Names of the topic, partition and offset columns.
        ranges: Ranges to count; empty ranges count nothing.
        stream: Only rows with this value in column `stream`.
        on_progress: Called with the table's name, rows read, and most rows to read.
        max_rows, max_seconds: Limits; rows are not counted beyond them.
    """
    asked = {partition: range_ for partition, range_ in ranges.items() if range_.end > range_.start}
    name = ".".join(table.name())
    if not asked or table.current_snapshot() is None:
        return RowsInRanges(dict.fromkeys(asked, 0))
    if lacking := missing_column(table, columns):
        return RowsInRanges(None, f"table {name} has no column {lacking}")
    began = time.monotonic()
    within = spanning_ranges(columns, [PartitionRange(*each) for each in asked.items()])
    if stream is not None:
        within = And(within, EqualTo("stream", stream))
    scan = table.scan(row_filter=within, selected_fields=columns)
    with equality_deletes_named(name):
        total = sum(task.file.record_count for task in scan.plan_files())
    if total > max_rows:
        return RowsInRanges(None, f"it would read {total:,} rows of table {name}")
    sums, read = _Sums(asked, dict.fromkeys(asked, 0)), 0
    for batch in scan.to_arrow_batch_reader():
        sums.add(batch, columns)
        read += batch.num_rows
        on_progress(name, read, total)
        if time.monotonic() - began > max_seconds:
            return RowsInRanges(None, f"table {name} was not read within {max_seconds:.0f} s")
    return RowsInRanges(sums.rows)


def spanning_ranges(columns: tuple[str, str, str], ranges: Sequence[PartitionRange]) -> BooleanExpression:
    """One row filter that files' statistics can answer; it may match more than the ranges."""
    topic, partition, offset = columns
    return And(
        In(topic, {each.partition.topic for each in ranges}),
        In(partition, {each.partition.partition for each in ranges}),
        GreaterThanOrEqual(offset, min(each.range.start for each in ranges)),
        LessThan(offset, max(each.range.end for each in ranges)),
    )


def missing_column(table: Table, columns: tuple[str, str, str]) -> str | None:
    """The first column, needed to count rows in ranges, that a table lacks; None if it has all."""
    present = set(table.schema().column_names)
    return next((name for name in columns if name not in present), None)


class RowCounter:
    """Counts the rows of one snapshot of a table.

    Args:
        columns: Names of the topic, partition and offset columns.
        stream: Only rows with this value in column `stream`; None for all.
        also: A further condition on rows.
        snapshot_id: The snapshot; None for the newest one.
        files: Only rows of these data files; None for all.
        on_rows: Called with the number of rows read, as reading goes on.
    """

    def __init__(
        self,
        table: Table,
        columns: tuple[str, str, str],
        *,
        stream: str | None = None,
        also: BooleanExpression | None = None,
        snapshot_id: int | None = None,
        files: Set[str] | None = None,
        on_rows: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._table: Table = table
        self._columns: tuple[str, str, str] = columns
        self._conditions: list[BooleanExpression] = [EqualTo("stream", stream)] if stream is not None else []
        self._conditions += [also] if also is not None else []
        self._snapshot_id: int | None = snapshot_id
        self._files: Set[str] | None = files
        self._on_rows: Callable[[int], None] = on_rows

    def count(self, ranges: Sequence[PartitionRange]) -> list[np.ndarray]:
        """Number of rows for each offset of the ranges, up to `MANY`.

        Args:
            ranges: Disjoint ranges; together a window.

        Returns:
            One byte array per range, one byte per offset.

        Raises:
            FrazilError: The table cannot be read.
        """
        bounds = np.cumsum([0, *(each.range.end - each.range.start for each in ranges)])
        counts = np.zeros(int(bounds[-1]), np.uint8)
        of: dict[TopicPartition, list[tuple[OffsetRange, int]]] = {}
        for each, base in zip(ranges, bounds.tolist(), strict=False):
            of.setdefault(each.partition, []).append((each.range, base))
        if ranges and self._table.current_snapshot() is not None:
            try:
                with equality_deletes_named(".".join(self._table.name())):
                    for batch in self._batches(ranges):
                        self._add(counts, batch, of)
                        self._on_rows(batch.num_rows)
            except EqualityDeletesError:
                raise
            except Exception as problem:
                # A file may have expired during the scan, or have deletes that PyIceberg does not apply.
                name, said = ".".join(self._table.name()), f"{type(problem).__name__}: {problem}"
                raise FrazilError(
                    f"the rows of table {name} cannot be counted: {said}",
                    fix="run it again; if the result is the same, look at who else writes to the table, and how",
                ) from problem
        return [counts[start:end] for start, end in itertools.pairwise(bounds.tolist())]

    def _batches(self, ranges: Sequence[PartitionRange]) -> Iterable[pa.RecordBatch]:
        scan = self._table.scan(
            row_filter=self._filter(ranges), selected_fields=self._columns, snapshot_id=self._snapshot_id
        )
        if self._files is None:
            return scan.to_arrow_batch_reader()
        tasks = [each for each in scan.plan_files() if each.file.file_path in self._files]
        return ArrowScan(self._table.metadata, self._table.io, scan.projection(), scan.row_filter).to_record_batches(
            tasks
        )

    def _add(
        self, counts: np.ndarray, batch: pa.RecordBatch, of: dict[TopicPartition, list[tuple[OffsetRange, int]]]
    ) -> None:
        if not batch.num_rows:
            return
        topics, partitions, offsets = (batch.column(name) for name in self._columns)
        coded = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
        names = coded.dictionary.to_pylist()
        # The filter has left out rows without coordinates, which other writers wrote.
        keys = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64) << 32
        keys += partitions.to_numpy(zero_copy_only=False)
        at = offsets.to_numpy(zero_copy_only=False)
        distinct = keys[:1] if (keys == keys[0]).all() else np.unique(keys)
        for key in distinct.tolist():
            here = at if len(distinct) == 1 else at[keys == key]
            for range_, base in of.get(TopicPartition(names[key >> 32], key & 0xFFFFFFFF), ()):
                inside = here[(here >= range_.start) & (here < range_.end)]
                if len(inside):
                    _raise(counts, inside - range_.start + base)

    def _filter(self, ranges: Sequence[PartitionRange]) -> BooleanExpression:
        """Row filter that files' statistics can answer; wider than the ranges if they are many."""
        topic, partition, offset = self._columns
        spans = _spans(ranges)
        if len(spans) <= _MAX_CONDITIONS:
            each = [
                And(
                    EqualTo(topic, span.partition.topic),
                    EqualTo(partition, span.partition.partition),
                    GreaterThanOrEqual(offset, span.range.start),
                    LessThan(offset, span.range.end),
                )
                for span in spans
            ]
            wanted = each[0] if len(each) == 1 else Or(*each)
        else:
            wanted = spanning_ranges(self._columns, spans)
        return And(wanted, *self._conditions) if self._conditions else wanted


def _raise(counts: np.ndarray, places: np.ndarray) -> None:
    """Add one at each place, as often as it is named; sums stop at `MANY`."""
    steps = np.diff(places)
    if (steps > 0).all():
        named, often = places, np.ones(len(places), np.int64)
    else:
        named, often = np.unique(places, return_counts=True)
    counts[named] = np.minimum(counts[named].astype(np.int64) + often, MANY)


def _spans(ranges: Sequence[PartitionRange]) -> list[PartitionRange]:
    """The ranges, with adjacent ones merged."""
    spans: list[PartitionRange] = []
    for each in sorted(ranges):
        last = spans[-1] if spans else None
        if last is not None and last.partition == each.partition and last.range.end == each.range.start:
            spans[-1] = PartitionRange(each.partition, OffsetRange(last.range.start, each.range.end))
        else:
            spans.append(each)
    return spans
