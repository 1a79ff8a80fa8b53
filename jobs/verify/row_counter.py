"""Row counter of a table by Kafka's coordinates: topic, partition, offset.

Memory is bounded by the window, not by the table: a window is some millions of offsets with a byte each. Files that
hold none of a window's offsets, by their statistics, are not opened; of the others three columns are read.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them; of PyIceberg's
# expressions it sees pydantic's keywords only.
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence, Set

import numpy as np
import pyarrow as pa
from pyiceberg.expressions import And, BooleanExpression, EqualTo, GreaterThanOrEqual, LessThan, Or
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import Table

from jobs.commit.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.errors import FrazilError
from jobs.verify.rows_in_ranges import spanning_ranges

WINDOW_OFFSETS = 16_000_000
# A count stands for itself below it; this one means `so many or more`.
MANY = 255
# More conditions than these in one filter cost more than the files that they spare.
_MAX_CONDITIONS = 24


class RowCounter:
    """Counts the rows of one snapshot of a table.

    Args:
        table: As loaded.
        columns: Names of the columns of topic, partition and offset.
        stream: Only rows whose column `stream` says so; None for all.
        also: What else must hold of a row.
        snapshot_id: The snapshot; None for the newest one.
        files: Only rows of these data files; None for all.
        on_rows: Told how many rows were read, as they are.
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
        """How often each offset of the ranges stands in the table, up to `MANY`.

        Args:
            ranges: Disjoint; together a window.

        Returns:
            One array of bytes per range, one byte per offset.

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
                for batch in self._batches(ranges):
                    self._add(counts, batch, of)
                    self._on_rows(batch.num_rows)
            except Exception as problem:
                # A file may have expired under the scan, or hold deletes that PyIceberg does not apply.
                name, said = ".".join(self._table.name()), f"{type(problem).__name__}: {problem}"
                raise FrazilError(
                    f"the rows of table {name} cannot be counted: {said}",
                    fix="run it again; if it says the same, look at who else writes to the table, and how",
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
        # A row without coordinates was written by somebody else; the filter has left it out.
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
        """What the files' statistics can answer; where ranges are many, wider than they are."""
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
    """Add one at each place, as often as it is named; a sum stays at `MANY` where it would be more."""
    steps = np.diff(places)
    if (steps > 0).all():
        named, often = places, np.ones(len(places), np.int64)
    else:
        named, often = np.unique(places, return_counts=True)
    counts[named] = np.minimum(counts[named].astype(np.int64) + often, MANY)


def _spans(ranges: Sequence[PartitionRange]) -> list[PartitionRange]:
    """The ranges, those that touch as one."""
    spans: list[PartitionRange] = []
    for each in sorted(ranges):
        last = spans[-1] if spans else None
        if last is not None and last.partition == each.partition and last.range.end == each.range.start:
            spans[-1] = PartitionRange(each.partition, OffsetRange(last.range.start, each.range.end))
        else:
            spans.append(each)
    return spans
