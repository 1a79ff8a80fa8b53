"""The audit's second half: the units of the ledger against how often each offset stands in the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify.audit import Expected
from jobs.verify.audit_facts import Unit
from jobs.verify.audit_found import Found, Ranges
from jobs.verify.table_rows import Piece

# Per piece and offset: rows in the sink, dead letters, and those of the letters that came back.
Counting = Callable[[Sequence[Piece]], tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]]


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
class Counted:
    """What stands in both tables of one block.

    Attributes:
        apart: Whether a record stands in one of the two tables only; after an operator's answer perhaps in both.
        both: Offsets that stand in both tables; without letters that came back, or that no batch put there.
    """

    block: Block
    sink: list[Found]
    dead: list[Found]
    apart: bool = True
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


def counted(parts: Iterable[list[Part]], count: Counting, apart: Callable[[Block], bool]) -> Iterator[Counted]:
    """Count window by window, and give each block when all of it is counted.

    Args:
        parts: Of each window.
        count: Counts the rows of a window.
        apart: Whether a record of a block stands in one of the two tables only.
    """
    open_: Counted | None = None
    for window in parts:
        arrays = count([Piece(part.block.partition, part.range) for part in window])
        for part, in_sink, in_dead, back in zip(window, *arrays, strict=True):
            if open_ is None:
                block = part.block
                sink, dead = ([Found(unit) for unit in units] for units in (block.sink, block.dead))
                open_ = Counted(block, sink, dead, apart(block))
            _take(open_, part.range, _without_replays(open_, part.range, in_sink, in_dead, back), in_dead, back)
            if part.last:
                yield open_
                open_ = None


def _without_replays(
    into: Counted, range_: OffsetRange, in_sink: np.ndarray, in_dead: np.ndarray, back: np.ndarray
) -> np.ndarray:
    """How often each offset stands in the sink, rows of replays left out.

    Letters that came back allow for one row of their record, which need not be there: it stood there already, or
    another reading has landed it. So only what no reading can have landed is taken for it.
    """
    if not back.any():
        return in_sink
    # At most so many readings made a row: the others made a letter.
    landed = np.zeros(len(in_sink), np.int16)
    for reading in (reading for unit in into.block.sink for reading in unit.readings):
        landed[max(0, reading.range.start - range_.start) : max(0, reading.range.end - range_.start)] += 1
    landed = np.maximum(landed - np.maximum(in_dead, back), 0)
    replayed = np.clip(in_sink - landed, 0, np.minimum(back, 1)).astype(np.uint8)
    for found in into.sink:
        start, end = (max(0, at - range_.start) for at in found.unit.range)
        found.replayed += int(replayed[start:end].sum(dtype=np.int64))
    return in_sink - replayed


def _take(into: Counted, range_: OffsetRange, in_sink: np.ndarray, in_dead: np.ndarray, back: np.ndarray) -> None:
    once = all(len(unit.readings) == 1 for unit in (*into.block.sink, *into.block.dead))
    # A record that failed when it was read, once, has no row but that of its replay, which is left out already.
    none = (in_dead > 0) & (back > 0) if once and into.apart and back.any() else None
    for found_of, mine, other in ((into.sink, in_sink, in_dead), (into.dead, in_dead, in_sink)):
        for found in found_of:
            start, end = max(found.unit.range.start, range_.start), min(found.unit.range.end, range_.end)
            if start < end:
                part = slice(start - range_.start, end - range_.start)
                landed_none = none[part] if none is not None and found_of is into.sink else None
                found.add(mine[part], other[part], start, landed_none)
    if not in_dead.any():
        return
    outside = in_dead.copy()
    for unit in into.block.dead:
        outside[max(0, unit.range.start - range_.start) : max(0, unit.range.end - range_.start)] = 0
    if once:
        shared = np.flatnonzero((in_sink > 0) & (in_dead > 0) & (back == 0) & (outside == 0))
        into.in_both += len(shared)
        into.both.add(shared, range_.start)
    into.stray += int(outside.sum(dtype=np.int64))
    into.strays.add(np.flatnonzero(outside), range_.start)
