"""Table ranges: for which offsets each table of a stream was committed to, as the ledger's rows say."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify.ledger_row import LedgerRow, effective_rows

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


class TableRanges:
    """Tells for which offsets a table was a target that got rows.

    A table that a value names has rows of it from the batch on that made the table, and its first range begins there.

    Args:
        rows: The ledger's, of all tables of a stream.
    """

    def __init__(self, rows: Iterable[LedgerRow]) -> None:
        found: dict[tuple[str, TopicPartition], list[OffsetRange]] = {}
        for row in effective_rows(rows):
            if row.kind in ("batch", "unknown") and row.range.end > row.range.start:
                found.setdefault((row.table, row.partition), []).append(row.range)
        self.tables: frozenset[str] = frozenset(table for table, _ in found)
        self._ranges: dict[tuple[str, TopicPartition], tuple[Offsets, Offsets]] = {
            key: _joined(ranges) for key, ranges in found.items()
        }

    def with_rows_of(self, table: str, other: str) -> TableRanges:
        """The same, with what another table got taken as a table's as well: its late rows, say."""
        made = TableRanges(())
        made.tables, made._ranges = self.tables | {table}, dict(self._ranges)
        for place in [place for name, place in self._ranges if name == other]:
            both = [self._ranges[name, place] for name in (table, other) if (name, place) in self._ranges]
            ranges = [OffsetRange(int(start), int(end)) for of in both for start, end in zip(*of, strict=True)]
            made._ranges[table, place] = _joined(ranges)
        return made

    def of(self, table: str, place: TopicPartition, offsets: Offsets) -> Mask:
        """Which offsets of a partition lie in a range of a table."""
        if (table, place) not in self._ranges:
            return np.zeros(len(offsets), bool)
        starts, ends = self._ranges[table, place]
        at = np.searchsorted(starts, offsets, side="right") - 1
        return (at >= 0) & (offsets < ends[at])


def _joined(ranges: Iterable[OffsetRange]) -> tuple[Offsets, Offsets]:
    """Ranges as starts and ends, ascending, those that touch or overlap as one."""
    starts: list[int] = []
    ends: list[int] = []
    for start, end in sorted(ranges):
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    return np.array(starts, np.int64), np.array(ends, np.int64)
