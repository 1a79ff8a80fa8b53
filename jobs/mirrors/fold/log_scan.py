"""Log scan of one partition: facts about the order of its changes, collected in the order of their offsets.

A scan reads a few columns of each change and keeps little: where the lineage changes, which changes are repeats,
truncates, and the greatest position. It proceeds chunk by chunk, so a partition need not fit in memory.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.mirrors.fold.fold import Ints, Mask, boolean_mask, whole_numbers
from jobs.mirrors.model.merge_plan import MOST_GENERATIONS, Break, Generation, PartitionState, Scope
from jobs.mirrors.model.order_token import order_positions

SCANNED = pa.schema(
    {
        "offset": pa.int64(),
        "op": pa.string(),
        "at": pa.int64(),
        "position": pa.string(),
        "lineage": pa.string(),
        "null_key": pa.bool_(),
    }
)
"""Columns of a chunk; `at` is in µs since 1970, `null_key` is true if a column of the mirror's key is null."""
SLACK_US = 1_000_000
"""Tolerance: times of successive changes may be in the wrong order by this much."""


@dataclass(frozen=True, slots=True)
class LogScan:
    """Result of scanning one partition's log, from the first offset that no merge has seen.

    Attributes:
        unseen: First offset that no merge has seen; changes below it are late.
        next_offset: Offset after the last change.
        lineage, position, at: Present lineage, its greatest position, and its latest time of a change that is no
            repeat.
        lineages: `(offset, lineage)` of each point where another lineage begins, including the first.
        first, first_at: Offset and time of the first change that is not late; None if all are late.
        known: Source timelines (generations) that the mirror knows of the partition.
        earlier: `(number, offset)` of late changes of a timeline's lineage, before its first change so far.
        strange: Greatest offset of a late change whose lineage is not that of its timeline; None if there is none.
        repeats: Offset ranges of changes that the source had sent before.
        carried: `(start, end, position)`: offset range of changes without a position, and the position before them.
        truncates: `(offset, position, time)` of truncates, including late ones.
        restored: `(offset, position, greatest before it, whether times are known)` of the first change after a restore
            of the source, or possibly after one if times are unknown. The scan stops there.
        null_key: First offset of a change with a null in its key; truncates do not count.
        rows, late_rows, repeated_rows, null_keys, truncate_rows: Counts of changes.
        scope: Scope within which positions are compared.
        breaks: Points where an operator let positions begin again; lineages after such a point count as other ones.
    """

    unseen: int = 0
    next_offset: int = 0
    lineage: str | None = None
    position: str | None = None
    at: int | None = None
    lineages: tuple[tuple[int, str], ...] = ()
    first: int | None = None
    first_at: int | None = None
    known: tuple[Generation, ...] = ()
    earlier: tuple[tuple[int, int], ...] = ()
    strange: int | None = None
    repeats: tuple[tuple[int, int], ...] = ()
    carried: tuple[tuple[int, int, str], ...] = ()
    truncates: tuple[tuple[int, str | None, int | None], ...] = ()
    restored: tuple[int, str, str, bool] | None = None
    null_key: int | None = None
    rows: int = 0
    late_rows: int = 0
    repeated_rows: int = 0
    null_keys: int = 0
    truncate_rows: int = 0
    scope: Scope = field(default="source")
    breaks: tuple[Break, ...] = ()

    @staticmethod
    def after(state: PartitionState | None, scope: Scope = "source", breaks: tuple[Break, ...] = ()) -> LogScan:
        """Return a scan that continues from the mirror's state of the partition."""
        if state is None:
            return LogScan(scope=scope, breaks=breaks)
        begin = state.next_offset
        found = LogScan(begin, begin, state.lineage, state.position, state.at, known=state.generations)
        return replace(found, scope=scope, breaks=breaks)

    def scanned(self, rows: pa.Table | pa.RecordBatch) -> LogScan:
        """Return the scan with the next rows.

        Args:
            rows: Rows with the columns of `SCANNED`, sorted by offset, all after the rows scanned before.
        """
        if not rows.num_rows or self.restored is not None:
            return self
        at = rows.schema.get_field_index("position")
        rows = rows.set_column(at, SCANNED.field("position"), order_positions(rows["position"]))
        offsets = whole_numbers(rows["offset"])
        late = int(np.searchsorted(offsets, self.unseen))
        truncates = pc.fill_null(pc.equal(rows["op"], "t"), False)
        nulls = np.flatnonzero(boolean_mask(pc.and_not(pc.fill_null(rows["null_key"], True), truncates)))
        found = replace(
            self,
            rows=self.rows + rows.num_rows,
            late_rows=self.late_rows + late,
            null_keys=self.null_keys + len(nulls),
            null_key=int(offsets[nulls[0]]) if len(nulls) and self.null_key is None else self.null_key,
        )
        gone = np.flatnonzero(boolean_mask(truncates))
        positions, times = (rows[name].take(pa.array(gone)).to_pylist() for name in ("position", "at"))
        truncated = list(zip(offsets[gone].tolist(), positions, times, strict=True))
        if late and self.known:
            found = found._behind_their_generation(rows.slice(0, late), offsets[:late])
        if late < rows.num_rows:
            found = found._in_order(rows.slice(late), offsets[late:])
        # Repeated truncates are known already. A truncate without a position gets the position before it.
        kept = [(offset, position or _within(offset, found.carried), time) for offset, position, time in truncated]
        kept = [each for each in kept if each[0] < self.unseen or not any(a <= each[0] < b for a, b in found.repeats)]
        return replace(found, truncates=(*self.truncates, *kept), truncate_rows=self.truncate_rows + len(truncated))

    def _behind_their_generation(self, rows: pa.Table | pa.RecordBatch, offsets: Ints) -> LogScan:
        """Add late rows: some belong to the beginning of a timeline, and were dead letters when it was first seen.

        If all changes of a timeline were dead letters, the mirror does not know it, and its changes are `strange`.
        """
        lineages = restored_lineages(rows["lineage"], offsets, self.breaks)
        found = [*self.earlier]
        for before, after in pairwise(self.known):
            if after.lineage not in (None, before.lineage):
                mine = boolean_mask(pc.fill_null(pc.equal(lineages, after.lineage), False))
                begins = offsets[mine & (offsets >= before.since) & (offsets < after.since)]
                found += [(after.number, int(each)) for each in begins[:1]]
        known = begun_earlier(self.known, found)
        place = np.searchsorted([each.since for each in known[1:]], offsets, side="right")
        wanted = pa.array([each.lineage for each in known], pa.string()).take(pa.array(place))
        strange = boolean_mask(pc.fill_null(pc.not_equal(lineages.cast(pa.string()), wanted), False))
        # Rows of an initial snapshot may have their own lineage, as with MySQL, and positions before all others.
        read = boolean_mask(pc.fill_null(pc.equal(rows["op"], "r"), False))
        strange &= (offsets >= known[0].since) | (~read if len(known) < MOST_GENERATIONS else False)
        return replace(self, earlier=tuple(found), strange=max([*offsets[strange].tolist()[-1:]], default=self.strange))

    def _in_order(self, rows: pa.Table | pa.RecordBatch, offsets: Ints) -> LogScan:
        """Add rows that are not late."""
        found = replace(self, next_offset=int(offsets[-1]) + 1)
        if self.first is None:
            found = replace(found, first=int(offsets[0]), first_at=rows["at"][0].as_py())
        # The state so far is put in front, as if it were a change.
        named = _behind(self.lineage, restored_lineages(rows["lineage"], offsets, self.breaks), pa.string())
        lineages = pc.fill_null_forward(named)
        positions = _behind(self.position, rows["position"], pa.string())
        # A position without a lineage belongs to a row, such as its version, and cannot be compared with others.
        positions = pc.if_else(pc.is_valid(lineages), positions, pa.scalar(None, pa.string()))
        times = _behind(self.at, rows["at"], pa.int64())
        codes = _codes(lineages)
        begins = np.zeros(len(codes), bool)
        begins[1:] = codes[1:] != codes[:-1]
        lineage = lineages[-1].as_py()
        starts = tuple((int(offsets[n - 1]), lineages[int(n)].as_py()) for n in np.flatnonzero(begins))
        found = replace(found, lineage=lineage, lineages=(*self.lineages, *starts))
        if self.scope == "key":
            return found
        # The first lineage after changes without one begins no new run: nothing has been compared so far.
        run = np.cumsum(begins & (np.concatenate(([-1], codes[:-1])) >= 0)).astype(np.int64)
        return found._compared(_Compared.of(positions, times, run), offsets)

    def _compared(self, seen: _Compared, offsets: Ints) -> LogScan:
        restored = np.flatnonzero(seen.restored)
        if len(restored):
            here = int(restored[0])
            position, greatest = seen.positions[here].as_py(), seen.greatest(here - 1)[0] or ""
            return replace(self, restored=(int(offsets[here - 1]), position, greatest, bool(seen.timed[here])))
        repeats = tuple((int(offsets[a]), int(offsets[b - 1]) + 1) for a, b in _stretches(seen.lower[1:], None))
        carried = tuple(
            (int(offsets[a]), int(offsets[b - 1]) + 1, seen.greatest(a + 1)[0] or "")
            for a, b in _stretches(seen.carried[1:], seen.holder[1:])
        )
        position, at = seen.greatest(-1)
        return replace(
            self,
            position=position,
            at=at,
            repeats=(*self.repeats, *repeats),
            repeated_rows=self.repeated_rows + int(seen.lower.sum()),
            carried=(*self.carried, *carried),
        )


@dataclass(frozen=True, slots=True)
class _Compared:
    """Changes compared with the greatest position before them in their lineage; the first stands for the state so far.

    Attributes:
        positions: Position of each change, or null.
        lower: True if the position is lower than the greatest before it.
        restored: True if the position is lower, and the change is later than all before it, or times are unknown.
        timed: True if the times of the change and of an earlier one in its lineage are known.
        carried: True if the change has no position, and one before it has.
        holder: Index of the first change with the greatest position so far.
        times: Latest time of a change in its lineage so far; -1 if unknown. Positions may be those of commits and times
            those of changes, so another change may have the greatest position.
    """

    positions: pa.Array
    lower: Mask
    restored: Mask
    timed: Mask
    carried: Mask
    holder: Ints
    times: Ints

    @staticmethod
    def of(positions: pa.Array, times: pa.Array, run: Ints) -> _Compared:
        there = boolean_mask(pc.is_valid(positions))
        # Only the order of the texts counts; 0 stands for null.
        rank = np.where(there, whole_numbers(pc.rank(pc.fill_null(positions, ""), tiebreaker="dense")), 0)
        rank = run * (int(rank.max()) + 1) + rank
        greatest = np.maximum.accumulate(rank)
        before = np.concatenate((greatest[:1], greatest[:-1]))
        same_run = np.concatenate(([True], run[1:] == run[:-1]))
        lower = there & same_run & (rank < before)
        rises = np.concatenate(([True], greatest[1:] != greatest[:-1]))
        holder = np.maximum.accumulate(np.where(rises, np.arange(len(rank)), 0))
        at = np.where(boolean_mask(pc.is_valid(times)), whole_numbers(pc.fill_null(times, -1)), -1)
        # Times of repeats do not count: a series of them could each move the latest time by the tolerance.
        latest = _latest(np.where(there & ~lower, at, -1), run)
        timed = (at >= 0) & (latest >= 0)
        restored = lower & (~timed | (at > latest + SLACK_US))
        carried = ~there & there[holder]
        return _Compared(positions, lower, restored, timed, carried, holder, latest)

    def greatest(self, index: int) -> tuple[str | None, int | None]:
        """Return the greatest position up to a change, and the latest time."""
        at = int(self.times[index])
        return self.positions[int(self.holder[index])].as_py(), at if at >= 0 else None


def carried_positions(positions: pa.Array, run: Ints) -> pa.Array:
    """Replace null positions by the greatest position before them in the same run, if there is one.

    Args:
        run: Number of each change's run; numbers ascend.
    """
    seen = _Compared.of(positions, pa.nulls(len(positions), pa.int64()), run)
    return positions.take(pa.array(np.where(seen.carried, seen.holder, np.arange(len(run)))))


def _latest(at: Ints, group: Ints) -> Ints:
    """Return the greatest value so far within each group; groups ascend."""
    values, codes = np.unique(at, return_inverse=True)
    width = len(values) + 1
    return values[np.maximum.accumulate(group * width + codes) - group * width]


def _stretches(mask: Mask, apart: Ints | None) -> Iterator[tuple[int, int]]:
    """Yield half-open index ranges in which the mask is true; `apart` splits them where its value changes."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    for start, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if apart is None:
            yield start, end
            continue
        cuts = [start, *(start + 1 + np.flatnonzero(np.diff(apart[start:end]))).tolist(), end]
        yield from pairwise(cuts)


def _behind(first: Any, values: pa.Array | pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    rest = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.concat_arrays([pa.array([first], kind), rest.cast(kind)])


def _codes(values: pa.Array) -> Ints:
    return whole_numbers(pc.fill_null(values.dictionary_encode().indices.cast(pa.int64()), -1))


def _within(offset: int, carried: tuple[tuple[int, int, str], ...]) -> str | None:
    return next((position for start, end, position in carried if start <= offset < end), None)


_SUFFIX = " restored "
_RESTORED = re.compile(rf"{_SUFFIX}\d+$")


def restored_lineages(
    lineages: pa.Array | pa.ChunkedArray, offsets: np.ndarray[Any, Any], breaks: tuple[Break, ...]
) -> pa.Array | pa.ChunkedArray:
    """Append the number of the preceding break to the lineages of changes.

    Args:
        lineages: Lineage of each change, or null.
        offsets: Offset of each change.
        breaks: Breaks of the partition, by offset.
    """
    if not breaks:
        return lineages
    place = np.searchsorted([each.since for each in breaks], offsets, side="right")
    suffixes = pa.array(["", *(f"{_SUFFIX}{each.number}" for each in breaks)]).take(pa.array(place))
    return pc.binary_join_element_wise(lineages.cast(pa.string()), suffixes, "")


def begun_earlier(known: Sequence[Generation], earlier: Sequence[tuple[int, int]]) -> list[Generation]:
    """Return the source timelines, moved to begin at a first change that has come late.

    Args:
        earlier: See `LogScan.earlier`.
    """
    since = {number: min(each for n, each in earlier if n == number) for number, _ in earlier}
    return [Generation(each.number, since.get(each.number, each.since), each.lineage) for each in known]


def source_lineage(lineage: str) -> str:
    """Return the lineage in the source's changes, without the number of a break."""
    return _RESTORED.sub("", lineage)
