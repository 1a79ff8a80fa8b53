"""Event times of a block of rows: the least and the greatest, and the rows behind the watermark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import make_compatible_name

from jobs.config.stream.event_time import EventTime
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.problems import LATE
from jobs.streaming.pipeline.block import Block
from jobs.tables.commit.stamp.event_times import NO_EVENTS, EventCounts
from jobs.tables.commit.stamp.lateness import LATENESS_MS
from jobs.tables.commit.stamp.offsets import TopicPartition

STAGE = "event_time"
"""Name of the stage in dead letters, for a late record."""

_DAY_MS = 86_400_000
_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
_NEVER = np.iinfo(np.int64).min

Steps = tuple[tuple[int, int | None], ...]
"""Offsets, ascending, each with the bound by which the records from there on were judged."""


@dataclass(frozen=True, slots=True)
class EventTimePlan:
    """Event-time plan of a task; times in milliseconds since 1970.

    Attributes:
        bound_ms: Watermark before the batch; None if nothing is late.
        ahead_ms: Latest plausible event time.
        passed: Bounds of earlier batches, for records that the coordinator has and another target may lack.
    """

    spec: EventTime
    bound_ms: int | None
    ahead_ms: int
    passed: Mapping[TopicPartition, Steps] = field(default_factory=dict)

    def greatest_bound(self, source: TopicPartition) -> int | None:
        """Greatest bound of a partition: a record with no earlier event time is not late."""
        known = [each for _, each in self.passed.get(source, ())]
        return max((each for each in (self.bound_ms, *known) if each is not None), default=None)


@dataclass(frozen=True, slots=True)
class JudgedBlock:
    """A block without the rows that are too late to land.

    Attributes:
        counts: Counts of the records that the coordinator had not yet read.
        greatest_ms: Greatest plausible event time, records that are too late included.
    """

    block: Block
    counts: EventCounts = NO_EVENTS
    greatest_ms: int | None = None


def judge_block(
    plan: EventTimePlan,
    source: TopicPartition,
    block: Block,
    wanted: npt.NDArray[np.bool_],
    letters: npt.NDArray[np.bool_],
) -> JudgedBlock:
    """Find the event times of a block's rows; with `late: dead_letter`, rows that are too late fail.

    If the coordinator lacks a late record, and the dead letters are already past it, it lands. Otherwise it would be in
    neither table. The same applies to a table of late rows.

    Args:
        wanted: Which records the coordinator has not yet read.
        letters: Which records the dead letters have not yet read; or the table of late rows, if there is one.
    """
    if not block.rows.num_rows:
        return JudgedBlock(block)
    column = _column(block.rows, plan.spec.path)
    bounds = pc.min_max(column)  # pyright: ignore[reportAttributeAccessIssue]
    least, greatest = (_ms(bounds[each]) for each in ("min", "max"))
    span = _DAY_MS - 1 if pa.types.is_date(column.type) else 0
    late_below = plan.greatest_bound(source)
    timely = least is None or late_below is None or least + span >= late_below
    if timely and (greatest is None or greatest <= plan.ahead_ms) and wanted.all():
        return JudgedBlock(block, EventCounts(least, greatest, column.null_count), greatest)
    return _judged_rows(plan, source, block, column, span, wanted[block.positions], letters[block.positions])


def _judged_rows(
    plan: EventTimePlan,
    source: TopicPartition,
    block: Block,
    column: pa.Array,
    span: int,
    wanted: npt.NDArray[np.bool_],
    letters: npt.NDArray[np.bool_],
) -> JudgedBlock:
    there = np.asarray(column.is_valid())
    times = _times(column)
    bounds = _bounds(plan, source, block, wanted)
    late = _late(there, times, bounds, span)
    # Records that the coordinator has were decided before, whichever target lacks them now.
    apart = late & (letters | ~wanted) if plan.spec.late != "land" else np.zeros(len(late), dtype=bool)
    dead = apart if plan.spec.late == "dead_letter" else np.zeros(len(late), dtype=bool)
    believed = there & wanted & (times <= plan.ahead_ms)
    landed = there & wanted & ~apart
    lateness = np.where(late, bounds - span - times, 0)
    behind = late & wanted
    histogram = np.bincount(np.searchsorted(LATENESS_MS, lateness[behind], side="left"), minlength=len(LATENESS_MS) + 1)
    first, second, third, fourth, more = (int(each) for each in histogram)
    counts = EventCounts(
        int(times[landed].min()) if landed.any() else None,
        int(times[landed].max()) if landed.any() else None,
        int((wanted & ~there).sum()),
        int((there & wanted).sum() - believed.sum()),
        (first, second, third, fourth, more),
        int(lateness[behind].max(initial=0)),
        int((dead & wanted).sum()),
        _periods(plan.spec, times[behind & ~apart]),
        aside=int((apart & ~dead & wanted).sum()),
    ).bounded()
    greatest = int(times[believed].max()) if believed.any() else None
    if dead.any():
        block = _without_late(plan, block, dead, times, bounds, lateness)
    return JudgedBlock(block, counts, greatest)


def late_rows(
    plan: EventTimePlan,
    source: TopicPartition,
    block: Block,
    rows: pa.RecordBatch,
    wanted: npt.NDArray[np.bool_],
    aside: npt.NDArray[np.bool_],
) -> npt.NDArray[np.bool_]:
    """Which rows of a block are for the table of late rows; those that `judge_block` counts as such.

    Args:
        rows: Rows of the block, with Kafka's columns.
        wanted: Which records the coordinator has not yet read.
        aside: Which records the table of late rows has not yet read.
    """
    column = _column(rows, plan.spec.path)
    least = _ms(pc.min_max(column)["min"])  # pyright: ignore[reportAttributeAccessIssue]
    span = _DAY_MS - 1 if pa.types.is_date(column.type) else 0
    late_below = plan.greatest_bound(source)
    if least is None or late_below is None or least + span >= late_below:
        return np.zeros(rows.num_rows, dtype=bool)
    wanted, aside = wanted[block.positions], aside[block.positions]
    bounds = _bounds(plan, source, block, wanted)
    return _late(np.asarray(column.is_valid()), _times(column), bounds, span) & (aside | ~wanted)


def _late(
    there: npt.NDArray[np.bool_], times: npt.NDArray[np.int64], bounds: npt.NDArray[np.int64], span: int
) -> npt.NDArray[np.bool_]:
    return there & (times < bounds - span) & (bounds != _NEVER)


def _bounds(
    plan: EventTimePlan, source: TopicPartition, block: Block, wanted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64]:
    """Bound of each row: that of its own batch, if the coordinator has it."""
    bounds = np.full(len(wanted), _bound(plan.bound_ms), np.int64)
    steps = plan.passed.get(source)
    if steps and not wanted.all():
        offsets = np.asarray(block.records.column("offset"))[block.positions]
        begins, known = (np.array(each, np.int64) for each in zip(*((at, _bound(b)) for at, b in steps), strict=True))
        of = np.clip(np.searchsorted(begins, offsets, side="right") - 1, 0, None)
        bounds = np.where(wanted, bounds, known[of])
    return bounds


def _bound(bound_ms: int | None) -> int:
    return _NEVER if bound_ms is None else bound_ms


def _without_late(
    plan: EventTimePlan,
    block: Block,
    dead: npt.NDArray[np.bool_],
    times: npt.NDArray[np.int64],
    bounds: npt.NDArray[np.int64],
    lateness: npt.NDArray[np.int64],
) -> Block:
    field_ = f"$.{plan.spec.column}"
    failures = [
        Failure(row, STAGE, LATE, _message(int(times[row]), int(bounds[row]), int(lateness[row])), field_)
        for row in np.flatnonzero(dead).tolist()
    ]
    kept, gone = np.flatnonzero(~dead), block.positions[dead]
    routed = {name: each.without(gone) for name, each in block.routed.items()}
    return block.with_rows(block.rows.filter(pa.array(~dead)), kept, failures=failures, routed=routed)


def _message(time_ms: int, bound_ms: int, late_ms: int) -> str:
    by = timedelta(seconds=late_ms // 1000) if late_ms >= 1000 else f"{late_ms} ms"
    return f"needs an event time within the grace, found {_text(time_ms)}: {by} before the watermark {_text(bound_ms)}"


def _text(at_ms: int) -> str:
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _periods(spec: EventTime, times: npt.NDArray[np.int64]) -> dict[int, int]:
    """Rows by the start of their hour or day; in every zone, a quarter of an hour belongs to one of them."""
    quarter = 900_000
    found: dict[int, int] = {}
    starts, rows = np.unique(times - times % quarter, return_counts=True)
    for start, count in zip(starts.tolist(), rows.tolist(), strict=True):
        period = spec.start_of(start)
        found[period] = found.get(period, 0) + count
    return found


def row_times(rows: pa.RecordBatch, path: tuple[str, ...]) -> npt.NDArray[np.int64]:
    """Event times of the rows that have one, milliseconds since 1970.

    Args:
        path: Name of the column, within its structs from the outermost.
    """
    column = _column(rows, path)
    return _times(column)[np.asarray(column.is_valid())]


def _column(rows: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """A column of rows by the names of columns, or by those of files if the rows have a table's form."""
    names, kind = list[str](), rows.schema
    for name in path:
        names.append(name if kind.get_field_index(name) >= 0 else make_compatible_name(name))
        kind = kind.field(names[-1]).type
    top = rows.column(names[0])
    return top if len(names) == 1 else pc.struct_field(top, names[1:])  # pyright: ignore[reportAttributeAccessIssue]


def _times(column: pa.Array) -> npt.NDArray[np.int64]:
    """Times in milliseconds since 1970; any number for a null."""
    kind = column.type
    if pa.types.is_date(kind):
        days = pc.fill_null(column.cast(pa.int32()), 0)
        return np.asarray(days).astype(np.int64) * _DAY_MS
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0)) // _PER_MS[kind.unit]


def _ms(scalar: Any) -> int | None:
    if not scalar.is_valid:
        return None
    if pa.types.is_date(scalar.type):
        return scalar.cast(pa.int32()).as_py() * _DAY_MS
    return scalar.value // _PER_MS[scalar.type.unit]
