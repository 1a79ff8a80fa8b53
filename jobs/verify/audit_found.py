"""What stands in a table of one unit of the ledger, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from jobs.commit.offsets import OffsetRange
from jobs.verify.audit_facts import Problem, Unit
from jobs.verify.table_rows import MANY

MAX_RANGES = 1000


@dataclass(slots=True)
class Ranges:
    """Offsets as ranges, of which so many are kept, and the others counted."""

    kept: list[OffsetRange] = field(default_factory=list)
    more: int = 0

    def add(self, offsets: np.ndarray, base: int) -> None:
        """Add ascending offsets, each given as its distance from `base`."""
        if not len(offsets):
            return
        breaks = np.flatnonzero(np.diff(offsets) > 1)
        starts = offsets[np.concatenate(([0], breaks + 1))] + base
        ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + base + 1
        room = MAX_RANGES - len(self.kept)
        for start, end in zip(starts[:room].tolist(), ends[:room].tolist(), strict=True):
            if self.kept and self.kept[-1].end == start:
                self.kept[-1] = OffsetRange(self.kept[-1].start, end)
            else:
                self.kept.append(OffsetRange(start, end))
        self.more += max(0, len(starts) - max(0, room))


@dataclass(slots=True)
class Found:
    """What stands in a table of one unit.

    Attributes:
        present: Rows, but for those of replays.
        replayed: Rows of replays.
        surplus: Rows beyond those that the readings of their offset can have made.
        lacking: Rows that its offsets could have more: as many as they were read, less those that stand there.
        lacking_both: The same, of offsets that hold no row in the other table either.
    """

    unit: Unit
    present: int = 0
    replayed: int = 0
    surplus: int = 0
    lacking: int = 0
    lacking_both: int = 0
    doubled: Ranges = field(default_factory=Ranges)
    holes: Ranges = field(default_factory=Ranges)
    holes_both: Ranges = field(default_factory=Ranges)

    def add(self, counts: np.ndarray, other: np.ndarray, start: int, none: np.ndarray | None = None) -> None:
        """Take in offsets from `start` on.

        Args:
            counts: How often each stands in this table.
            other: The same, in the other one.
            none: Offsets of which no reading has landed a row; None: none is known.
        """
        rows = self.unit.rows
        self.present += int(counts.sum(dtype=np.int64))
        if not any(reading.told for reading in self.unit.readings):
            return  # Only its sum is known.
        whole = len(counts) == self.unit.range.end - self.unit.range.start
        plain = len(self.unit.readings) == 1 and (none is None or not counts[none].any())
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
        for reading in self.unit.readings:
            allowed[max(0, reading.range.start - start) : max(0, reading.range.end - start)] += (
                1 if reading.told else MANY
            )
        return allowed

    def missing(self, *, answered: bool) -> int:
        """Rows that are not there; negative if there are more, none of them doubled. 0 if it is not known.

        Args:
            answered: Whether an operator's answer was about the range. A letter may then be of a reading that is gone,
                and what was taken for the row of its replay, of the one that stands.
        """
        rows = self.unit.rows
        lacks = 0 if rows is None else rows - (self.present - self.surplus)
        return max(0, lacks - self.replayed) if lacks > 0 and answered else lacks

    def dead_before(self, instant: datetime) -> int:
        """Records that failed in batches of before."""
        return sum(each.counts.dead for each in self.unit.readings if each.at is not None and each.at < instant)

    def problems(self, table: str, missing: int, among: list[OffsetRange], *, apart: bool) -> Iterator[Problem]:
        """What is wrong with the unit.

        Args:
            missing: Rows that are not there; negative if there are more.
            among: The offsets of the rows that are too many, where they are known: those of dead letters.
            apart: Whether a record stands in one of the two tables only; after an operator's answer perhaps in both.
        """
        unit = self.unit
        if self.surplus:
            said = f"{_rows(self.surplus)} too many, of offsets that stand there more often than they were read"
            yield self._problem("doubled", table, self.surplus, said, self.doubled)
        if missing > 0:
            exact = missing == (self.lacking_both if apart else self.lacking)
            holes = self.holes_both if apart else self.holes
            said = f"{missing:,} of {unit.rows or 0:,} rows that were landed are not there"
            yield self._problem("missing", table, missing, said, holes, exact=exact)
        elif missing < 0 and among:
            said = f"{_rows(-missing)} too many, of records that are dead letters"
            yield self._problem("unexpected", table, -missing, said, Ranges(among))
        elif missing < 0:
            said = f"{_rows(-missing)} too many, of offsets that landed none"
            yield self._problem("unexpected", table, -missing, said, Ranges([unit.range]), exact=False)

    def _problem(self, kind, table: str, records: int, said: str, where: Ranges, *, exact: bool = True) -> Problem:
        unit = self.unit
        return Problem(
            kind,
            table,
            unit.partition,
            unit.range,
            records,
            said,
            tuple(where.kept),
            exact and not where.more,
            where.more,
        )


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
