"""Rows in ranges: how many rows of a table came from given ranges of Kafka's offsets."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them; of PyIceberg's
# expressions it sees pydantic's keywords only.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, In, LessThan
from pyiceberg.table import Table

from jobs.commit.offsets import OffsetRange, PartitionRange, TopicPartition

MAX_ROWS = 50_000_000
MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RowsInRanges:
    """Rows per partition.

    Attributes:
        rows: None if they were not counted.
        why_not: Why they were not.
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
    """Count the rows of a table whose coordinates are in one of the ranges; reads three columns of the files concerned.

    Args:
        columns: Names of the columns of topic, partition and offset.
        ranges: Empty ones count nothing.
        stream: Only rows whose column `stream` says so.
        on_progress: Told the table's name, rows read, and rows to read at most.
        max_rows, max_seconds: What counting may cost; beyond it is not done.
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
    """One condition on rows that the files' statistics can answer; wider than the ranges, told apart afterwards."""
    topic, partition, offset = columns
    return And(
        In(topic, {each.partition.topic for each in ranges}),
        In(partition, {each.partition.partition for each in ranges}),
        GreaterThanOrEqual(offset, min(each.range.start for each in ranges)),
        LessThan(offset, max(each.range.end for each in ranges)),
    )


def missing_column(table: Table, columns: tuple[str, str, str]) -> str | None:
    """The first column that a table lacks for its rows in ranges to be counted."""
    present = set(table.schema().column_names)
    return next((name for name in columns if name not in present), None)
