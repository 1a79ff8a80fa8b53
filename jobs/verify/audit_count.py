"""The audit's second half: the units of the ledger against how often each offset stands in the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify.audit import Expected
from jobs.verify.audit_facts import Problem, Unit
from jobs.verify.table_rows import MANY, Piece

MAX_RANGES = 1000
Counting = Callable[[Sequence[Piece]], tuple[list[np.ndarray], list[np.ndarray]]]


@dataclass(frozen=True, slots=True)
class Block:
    """Units of the sink and of the dead letters that overlap each other and no other."""

    partition: TopicPartition
    range: OffsetRange
    sink: tuple[Unit, ...]
    dead: tuple[Unit, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """A block, or what fits into a window of one that is greater."""

    block: Block
    range: OffsetRange

    @property
    def last(self) -> bool:
        """Whether the block ends with it."""
        return self.range.end == self.block.range.end


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
        present: Rows.
        surplus: Rows beyond those that the readings of their offset can have made.
        lacking: Rows that its offsets could have more: as many as they were read, less those that stand there.
        lacking_both: The same, of offsets that hold no row in the other table either.
    """

    unit: Unit
    present: int = 0
    surplus: int = 0
    lacking: int = 0
    lacking_both: int = 0
    doubled: Ranges = field(default_factory=Ranges)
    holes: Ranges = field(default_factory=Ranges)
    holes_both: Ranges = field(default_factory=Ranges)

    def add(self, counts: np.ndarray, other: np.ndarray, start: int) -> None:
        """Take in offsets from `start` on, with how often each stands in this table and in the other one."""
        rows = self.unit.rows
        self.present += int(counts.sum(dtype=np.int64))
        if not any(reading.told for reading in self.unit.readings):
            return  # Only its sum is known.
        whole = len(counts) == self.unit.range.end - self.unit.range.start
        if whole and self.present == rows and len(self.unit.readings) == 1 and counts.max() <= 1:
            return
        allowed = self._allowed(start, len(counts))
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

    @property
    def missing(self) -> int:
        """Rows that are not there; negative if there are more, none of them doubled. 0 if it is not known."""
        rows = self.unit.rows
        return 0 if rows is None else rows - (self.present - self.surplus)

    def problems(self, table: str, *, apart: bool) -> Iterator[Problem]:
        """What is wrong with the unit.

        Args:
            apart: Whether a record stands in one of the two tables only; after an operator's answer perhaps in both.
        """
        unit, missing = self.unit, self.missing
        if self.surplus:
            said = f"{_rows(self.surplus)} too many, of offsets that stand there more often than they were read"
            yield self._problem("doubled", table, self.surplus, said, self.doubled)
        if missing > 0:
            exact = missing == (self.lacking_both if apart else self.lacking)
            holes = self.holes_both if apart else self.holes
            said = f"{missing:,} of {unit.rows or 0:,} rows that were landed are not there"
            yield self._problem("missing", table, missing, said, holes, exact=exact)
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


@dataclass(slots=True)
class Counted:
    """What stands in both tables of one block."""

    block: Block
    sink: list[Found]
    dead: list[Found]
    both: Ranges = field(default_factory=Ranges)
    in_both: int = 0
    stray: int = 0
    strays: Ranges = field(default_factory=Ranges)


def blocks(sink: Expected, dead: Expected | None, after: int, dead_after: int) -> Iterator[Block]:
    """Blocks with a reading that is newer than the sequence numbers given, of the one table or the other."""
    for partition in sorted({*sink.units, *(dead.units if dead else ())}):
        mine = [(unit, True) for unit in sink.units.get(partition, ())]
        theirs = [(unit, False) for unit in dead.units.get(partition, ())] if dead else []
        together: list[tuple[Unit, bool]] = []
        end = 0
        for each in [*sorted(mine + theirs, key=lambda pair: pair[0].range), None]:
            if together and (each is None or each[0].range.start >= end):
                made = _block(partition, together)
                if any(u.newest > after for u in made.sink) or any(u.newest > dead_after for u in made.dead):
                    yield made
                together, end = [], 0
            if each is not None:
                together.append(each)
                end = max(end, each[0].range.end)


def _block(partition: TopicPartition, together: list[tuple[Unit, bool]]) -> Block:
    range_ = OffsetRange(together[0][0].range.start, max(unit.range.end for unit, _ in together))
    mine = tuple(unit for unit, of_sink in together if of_sink)
    return Block(partition, range_, mine, tuple(unit for unit, of_sink in together if not of_sink))


def windows(every: Iterable[Block], size: int) -> Iterator[list[Part]]:
    """Blocks in windows of at most `size` offsets; one that is greater fills several by itself."""
    window: list[Part] = []
    used = 0
    for block in every:
        at = block.range.start
        if window and used + block.range.end - at > size:
            yield window
            window, used = [], 0
        while block.range.end - at > size:
            yield [Part(block, OffsetRange(at, at + size))]
            at += size
        window.append(Part(block, OffsetRange(at, block.range.end)))
        used += block.range.end - at
    if window:
        yield window


def counted(parts: Iterable[list[Part]], count: Counting) -> Iterator[Counted]:
    """Count window by window, and give each block when all of it is counted."""
    open_: Counted | None = None
    for window in parts:
        arrays = count([Piece(part.block.partition, part.range) for part in window])
        for part, in_sink, in_dead in zip(window, *arrays, strict=True):
            if open_ is None:
                block = part.block
                open_ = Counted(block, [Found(unit) for unit in block.sink], [Found(unit) for unit in block.dead])
            _take(open_, part.range, in_sink, in_dead)
            if part.last:
                yield open_
                open_ = None


def _take(into: Counted, range_: OffsetRange, in_sink: np.ndarray, in_dead: np.ndarray) -> None:
    for found_of, mine, other in ((into.sink, in_sink, in_dead), (into.dead, in_dead, in_sink)):
        for found in found_of:
            start, end = max(found.unit.range.start, range_.start), min(found.unit.range.end, range_.end)
            if start < end:
                part = slice(start - range_.start, end - range_.start)
                found.add(mine[part], other[part], start)
    if not in_dead.any():
        return
    if all(len(unit.readings) == 1 for unit in (*into.block.sink, *into.block.dead)):
        shared = np.flatnonzero((in_sink > 0) & (in_dead > 0))
        into.in_both += len(shared)
        into.both.add(shared, range_.start)
    outside = in_dead.copy()
    for unit in into.block.dead:
        outside[max(0, unit.range.start - range_.start) : max(0, unit.range.end - range_.start)] = 0
    into.stray += int(outside.sum(dtype=np.int64))
    into.strays.add(np.flatnonzero(outside), range_.start)


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
