"""The audit's second half: the units of the ledger against how often each offset stands in the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.commit.offsets import OffsetRange, PartitionRange, TopicPartition
from jobs.spec.targets import TargetSpec
from jobs.verify.audit import Expected
from jobs.verify.audit_facts import Reading, Unit
from jobs.verify.audit_found import Found, Ranges

# By target how often each offset of each piece stands there; and how many letters of it came back.
Counting = Callable[[Sequence[PartitionRange]], tuple[Mapping[TargetSpec, list[np.ndarray]], list[np.ndarray]]]


@dataclass(frozen=True, slots=True)
class Block:
    """Units of the stream's targets that overlap each other and no other."""

    partition: TopicPartition
    range: OffsetRange
    units: Mapping[TargetSpec, Sequence[Unit]]

    def readings(self, target: TargetSpec) -> list[Reading]:
        """What was read of it for one target."""
        return [reading for unit in self.units.get(target, ()) for reading in unit.readings]


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
class Counted:
    """What stands in the tables of one block.

    Attributes:
        found: By target, those of rows first.
        apart: Whether a record is a row or a dead letter, and never both; after an operator's answer it may be.
        both: Offsets that stand in a table of rows and among the dead letters; without letters that came back,
            or that no batch put there.
    """

    block: Block
    found: dict[TargetSpec, list[Found]]
    apart: bool = True
    both: Ranges = field(default_factory=Ranges)
    in_both: int = 0
    stray: int = 0
    strays: Ranges = field(default_factory=Ranges)


def blocks(every: Mapping[TargetSpec, Expected], after: Mapping[TargetSpec, int]) -> Iterator[Block]:
    """Blocks with a reading that is newer than was audited before, of one target or another.

    Args:
        every: What the targets must hold.
        after: The sequence number through which each was audited before.
    """
    for partition in sorted({partition for each in every.values() for partition in each.units}):
        units = [(unit, target) for target, each in every.items() for unit in each.units.get(partition, ())]
        together: list[tuple[Unit, TargetSpec]] = []
        end = 0
        for each in [*sorted(units, key=lambda pair: pair[0].range), None]:
            if together and (each is None or each[0].range.start >= end):
                if any(unit.newest > after[target] for unit, target in together):
                    yield _block(partition, together)
                together, end = [], 0
            if each is not None:
                together.append(each)
                end = max(end, each[0].range.end)


def _block(partition: TopicPartition, together: list[tuple[Unit, TargetSpec]]) -> Block:
    range_ = OffsetRange(together[0][0].range.start, max(unit.range.end for unit, _ in together))
    units: dict[TargetSpec, list[Unit]] = {}
    for unit, target in together:
        units.setdefault(target, []).append(unit)
    return Block(partition, range_, units)


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


def counted(
    parts: Iterable[list[Part]], targets: Sequence[TargetSpec], count: Counting, apart: Callable[[Block], bool]
) -> Iterator[Counted]:
    """Count window by window, and give each block when all of it is counted.

    Args:
        parts: Of each window.
        targets: Those whose rows are counted.
        count: Counts the rows of a window.
        apart: Whether a record of a block is a row or a dead letter, and never both.
    """
    ordered = sorted(targets, key=lambda target: target.role != "rows")
    open_: Counted | None = None
    for window in parts:
        arrays, back = count([PartitionRange(part.block.partition, part.range) for part in window])
        for index, part in enumerate(window):
            if open_ is None:
                block = part.block
                found = {each: [Found(unit) for unit in block.units.get(each, ())] for each in ordered}
                open_ = Counted(block, found, apart(block))
            _take(open_, part.range, {each: arrays[each][index] for each in ordered}, back[index])
            if part.last:
                yield open_
                open_ = None


def _without_replays(
    into: Counted, target: TargetSpec, range_: OffsetRange, rows: np.ndarray, dead: np.ndarray, back: np.ndarray
) -> np.ndarray:
    """How often each offset stands in a table of rows, rows of replays left out.

    Letters that came back allow for one row of their record, which need not be there: it stood there already, or
    another reading has landed it. So only what no reading can have landed is taken for it.
    """
    if not back.any():
        return rows
    # At most so many readings made a row: the others made a letter.
    landed = np.zeros(len(rows), np.int16)
    for reading in into.block.readings(target):
        landed[max(0, reading.range.start - range_.start) : max(0, reading.range.end - range_.start)] += 1
    landed = np.maximum(landed - np.maximum(dead, back), 0)
    replayed = np.clip(rows - landed, 0, np.minimum(back, 1)).astype(np.uint8)
    for found in into.found[target]:
        start, end = (max(0, at - range_.start) for at in found.unit.range)
        found.replayed += int(replayed[start:end].sum(dtype=np.int64))
    return rows - replayed


def _take(into: Counted, range_: OffsetRange, arrays: Mapping[TargetSpec, np.ndarray], back: np.ndarray) -> None:
    """Add what stands in a part of a block.

    Args:
        arrays: How often each offset stands in each target.
        back: How many letters of each offset came back.
    """
    of_letters = [each for each in arrays if each.role == "dead_letters"]
    dead = _most([arrays[each] for each in of_letters], len(back))
    there = {
        each: _without_replays(into, each, range_, rows, dead, back) if each.role == "rows" else rows
        for each, rows in arrays.items()
    }
    in_rows = _most([rows for each, rows in there.items() if each.role == "rows"], len(back))
    once = all(len(unit.readings) == 1 for units in into.block.units.values() for unit in units)
    # A record that failed when it was read, once, has no row but that of its replay, which is left out already.
    none = (dead > 0) & (back > 0) if once and into.apart and back.any() else None
    for target, found_of in into.found.items():
        mine, other = there[target], dead if target.role == "rows" else in_rows
        for found in found_of:
            start, end = max(found.unit.range.start, range_.start), min(found.unit.range.end, range_.end)
            if start < end:
                part = slice(start - range_.start, end - range_.start)
                landed_none = none[part] if none is not None and target.role == "rows" else None
                found.add(mine[part], other[part], start, landed_none)
    if not dead.any():
        return
    outside = dead.copy()
    for unit in (unit for each in of_letters for unit in into.block.units.get(each, ())):
        outside[max(0, unit.range.start - range_.start) : max(0, unit.range.end - range_.start)] = 0
    if once:
        shared = np.flatnonzero((in_rows > 0) & (dead > 0) & (back == 0) & (outside == 0))
        into.in_both += len(shared)
        into.both.add(shared, range_.start)
    into.stray += int(outside.sum(dtype=np.int64))
    into.strays.add(np.flatnonzero(outside), range_.start)


def _most(arrays: Sequence[np.ndarray], length: int) -> np.ndarray:
    """The greatest number at each place; zeros without any array."""
    return np.maximum.reduce(arrays) if arrays else np.zeros(length, np.uint8)
