"""Found rows: the number of rows at each offset in the tables, compared with the ledger's expected rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from jobs.config.values.targets import TargetSpec
from jobs.proof.audit.audit_ranges import (
    ComparedRange,
    OffsetRanges,
    RangeGroup,
    WindowPart,
    slice_of_range,
)
from jobs.proof.audit.audit_result import AuditProblem
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange
from jobs.tables.ledger.row_counter import MANY

# Returns, for ranges, the rows at each offset by target, and the replayed dead letters at each offset.
CountRows = Callable[[Sequence[PartitionRange]], tuple[Mapping[TargetSpec, list[np.ndarray]], list[np.ndarray]]]


@dataclass(slots=True)
class FoundRows:
    """Rows of one range group found in a table.

    Attributes:
        present: Rows without those of replays.
        replayed: Rows of replays.
        surplus: Rows beyond those that the batches of their offset can have made.
        lacking: Rows that its offsets could have in addition: number of reads minus existing rows.
        lacking_both: The same, for offsets without a row in the other table as well.
    """

    group: RangeGroup
    present: int = 0
    replayed: int = 0
    surplus: int = 0
    lacking: int = 0
    lacking_both: int = 0
    doubled: OffsetRanges = field(default_factory=OffsetRanges)
    holes: OffsetRanges = field(default_factory=OffsetRanges)
    holes_both: OffsetRanges = field(default_factory=OffsetRanges)

    def add(self, counts: np.ndarray, other: np.ndarray, start: int, none: np.ndarray | None = None) -> None:
        """Add offsets from `start` on.

        Args:
            counts: Rows at each offset in this table.
            other: Rows at each offset in the other table.
            none: Offsets for which no batch has landed a row; None: unknown.
        """
        rows = self.group.rows
        self.present += int(counts.sum(dtype=np.int64))
        if not any(batch.stamped for batch in self.group.batches):
            return  # Only its sum is known.
        whole = len(counts) == self.group.range.end - self.group.range.start
        plain = len(self.group.batches) == 1 and (none is None or not counts[none].any())
        if whole and self.present == rows and plain and counts.max() <= 1:
            return
        allowed = self._allowed(start, len(counts))
        if none is not None:
            allowed[none] = 0
        counted = counts.astype(np.int16)
        over = np.flatnonzero(counted > allowed)
        self.surplus += int((counted - allowed)[over].sum(dtype=np.int64))
        self.doubled.add(over, start)
        lacks = np.maximum(allowed - counted, 0)
        under = np.flatnonzero(lacks)
        self.lacking += int(lacks.sum(dtype=np.int64))
        self.holes.add(under, start)
        alone = under[other[under] == 0]
        self.lacking_both += int(lacks[alone].sum(dtype=np.int64))
        self.holes_both.add(alone, start)

    def _allowed(self, start: int, length: int) -> np.ndarray:
        allowed = np.zeros(length, np.int16)
        for batch in self.group.batches:
            allowed[slice_of_range(batch.range, start)] += 1 if batch.stamped else MANY
        return allowed

    def missing(self, *, answered: bool) -> int:
        """Number of missing rows; negative if there are surplus ones that are not duplicates. 0 if unknown.

        Args:
            answered: Whether an operator's answer concerned the range. Then a dead letter may be of a removed batch,
                and an apparent row of its replay may be the existing batch's.
        """
        rows = self.group.rows
        lacks = 0 if rows is None else rows - (self.present - self.surplus)
        return max(0, lacks - self.replayed) if lacks > 0 and answered else lacks

    def dead_before(self, instant: datetime) -> int:
        """Records that failed in batches before an instant."""
        return sum(each.counts.dead for each in self.group.batches if each.at is not None and each.at < instant)

    def problems(self, table: str, missing: int, among: list[OffsetRange], *, apart: bool) -> Iterator[AuditProblem]:
        """Problems of the range group.

        Args:
            missing: Number of missing rows; negative for surplus ones.
            among: Offsets of the surplus rows, if known: those of dead letters.
            apart: Whether a record is in one of the two tables only; after an operator's answer it may be in both.
        """
        group = self.group
        if self.surplus:
            said = f"{_rows(self.surplus)} too many, of offsets that stand there more often than they were read"
            yield self._problem("doubled", table, self.surplus, said, self.doubled)
        if missing > 0:
            exact = missing == (self.lacking_both if apart else self.lacking)
            holes = self.holes_both if apart else self.holes
            said = f"{missing:,} of {group.rows or 0:,} rows that were landed are not there"
            yield self._problem("missing", table, missing, said, holes, exact=exact)
        elif missing < 0 and among:
            said = f"{_rows(-missing)} too many, of records that are dead letters"
            yield self._problem("unexpected", table, -missing, said, OffsetRanges(among))
        elif missing < 0:
            said = f"{_rows(-missing)} too many, of offsets that landed none"
            yield self._problem("unexpected", table, -missing, said, OffsetRanges([group.range]), exact=False)

    def _problem(
        self, kind, table: str, records: int, said: str, where: OffsetRanges, *, exact: bool = True
    ) -> AuditProblem:
        at, kept = self.group, tuple(where.kept)
        return AuditProblem(
            kind, table, at.partition, at.range, records, said, kept, exact and not where.more, where.more
        )


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"


@dataclass(slots=True)
class RangeComparison:
    """Rows of one compared range found in the tables.

    Attributes:
        found: Results by target, those of rows first.
        apart: Whether a record is a row or a dead letter, never both; after an operator's answer it may be both.
        offsets: Offsets with a row in a table of rows, without rows of replays.
        once: Whether each table received each offset in one batch only.
        both: Offsets in a table of rows and among the dead letters; without replayed dead letters, and without those
            that no batch put there.
    """

    compared: ComparedRange
    found: dict[TargetSpec, list[FoundRows]]
    apart: bool = True
    both: OffsetRanges = field(default_factory=OffsetRanges)
    offsets: int = 0
    once: bool = True
    in_both: int = 0
    stray: int = 0
    strays: OffsetRanges = field(default_factory=OffsetRanges)


def compare_rows(
    parts: Iterable[list[WindowPart]],
    targets: Sequence[TargetSpec],
    count: CountRows,
    apart: Callable[[ComparedRange], bool],
) -> Iterator[RangeComparison]:
    """Count window by window, and yield each compared range when it is counted completely.

    Args:
        parts: Parts of compared ranges in each window.
        targets: Targets whose rows are counted.
        count: Counts the rows of a window.
        apart: Whether a record of a compared range is a row or a dead letter, never both.
    """
    ordered = sorted(targets, key=lambda target: target.role != "rows")
    open_: RangeComparison | None = None
    for window in parts:
        arrays, back = count([PartitionRange(part.whole.partition, part.range) for part in window])
        for index, part in enumerate(window):
            if open_ is None:
                whole = part.whole
                found = {each: [FoundRows(group) for group in whole.groups.get(each, ())] for each in ordered}
                open_ = RangeComparison(whole, found, apart(whole))
            _add_part(open_, part.range, {each: arrays[each][index] for each in ordered}, back[index])
            if part.last:
                yield open_
                open_ = None


def _without_replays(
    into: RangeComparison, target: TargetSpec, range_: OffsetRange, rows: np.ndarray, dead: np.ndarray, back: np.ndarray
) -> np.ndarray:
    """Number of rows at each offset in a table of rows, without rows of replays.

    A replayed dead letter allows for one row of its record, which need not exist: the row may have existed already, or
    another batch may have landed it. So only a row that no batch can have landed is attributed to it.
    """
    if not back.any():
        return rows
    # Most batches that can have made a row, as the others made a dead letter.
    landed = np.zeros(len(rows), np.int16)
    for batch in into.compared.batches(target):
        landed[slice_of_range(batch.range, range_.start)] += 1
    landed = np.maximum(landed - np.maximum(dead, back), 0)
    replayed = np.clip(rows - landed, 0, np.minimum(back, 1)).astype(np.uint8)
    for found in into.found[target]:
        found.replayed += int(replayed[slice_of_range(found.group.range, range_.start)].sum(dtype=np.int64))
    return rows - replayed


def _add_part(
    into: RangeComparison, range_: OffsetRange, arrays: Mapping[TargetSpec, np.ndarray], back: np.ndarray
) -> None:
    """Add the rows of a part of a compared range.

    Args:
        arrays: Rows at each offset in each target.
        back: Replayed dead letters at each offset.
    """
    of_dead = [each for each in arrays if each.role == "dead_letters"]
    dead = _most([arrays[each] for each in of_dead], len(back))
    there = {
        each: _without_replays(into, each, range_, rows, dead, back) if each.role == "rows" else rows
        for each, rows in arrays.items()
    }
    in_rows = _most([rows for each, rows in there.items() if each.role == "rows"], len(back))
    once = all(len(group.batches) == 1 for groups in into.compared.groups.values() for group in groups)
    into.once = once
    into.offsets += int(np.count_nonzero(in_rows))
    # A record that was read once and failed has no row but that of its replay, which is left out already.
    none = (dead > 0) & (back > 0) if once and into.apart and back.any() else None
    for target, found_of in into.found.items():
        mine, other = there[target], dead if target.role == "rows" else in_rows
        for found in found_of:
            start, end = max(found.group.range.start, range_.start), min(found.group.range.end, range_.end)
            if start < end:
                part = slice(start - range_.start, end - range_.start)
                landed_none = none[part] if none is not None and target.role == "rows" else None
                found.add(mine[part], other[part], start, landed_none)
    if not dead.any():
        return
    outside = dead.copy()
    for group in (group for each in of_dead for group in into.compared.groups.get(each, ())):
        outside[slice_of_range(group.range, range_.start)] = 0
    if once:
        shared = np.flatnonzero((in_rows > 0) & (dead > 0) & (back == 0) & (outside == 0))
        into.in_both += len(shared)
        into.both.add(shared, range_.start)
    into.stray += int(outside.sum(dtype=np.int64))
    into.strays.add(np.flatnonzero(outside), range_.start)


def _most(arrays: Sequence[np.ndarray], length: int) -> np.ndarray:
    """Maximum at each place; zeros without any array."""
    return np.maximum.reduce(arrays) if arrays else np.zeros(length, np.uint8)
