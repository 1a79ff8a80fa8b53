"""Conversion of stamps to rows of the ledger, and of the gaps between stamps: pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from jobs.config.values.targets import TargetSpec
from jobs.tables.commit.stamp.offsets import OffsetRange, Ranges, TopicPartition
from jobs.tables.commit.stamp.retired_topics import returned_topics
from jobs.tables.commit.stamp.stamp_fields import Counts, Decision
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.ledger.ledger_checkpoints import FillCheckpoint
from jobs.tables.ledger.ledger_row import (
    NO_RANGE,
    RETIRED,
    RETURNED,
    WHOLE_TABLE,
    Kind,
    LedgerRow,
)


@dataclass(frozen=True, slots=True)
class StampedSnapshot:
    """A stamp with the fields of its snapshot."""

    stamp: Stamp
    snapshot_id: int
    sequence: int
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class StampedTable:
    """The table that has the stamps."""

    target: TargetSpec
    uuid: str


def ledger_rows(
    stamped: StampedSnapshot, known: FillCheckpoint | None, table: StampedTable
) -> tuple[list[LedgerRow], FillCheckpoint]:
    """Ledger rows of a stamp, and the checkpoint after it.

    Args:
        known: Checkpoint after the previous stamp; None if the ledger has none for the table.
    """
    stamp = stamped.stamp
    blank = LedgerRow(
        stamp.stream,
        table.target.name,
        table.uuid,
        table.target.coordinator,
        "batch",
        WHOLE_TABLE,
        NO_RANGE,
        stamp.epoch,
        stamp.batch,
        stamped.sequence,
        stamped.snapshot_id,
        stamped.committed_at,
        stamp.config,
        stamp.generation,
    )
    rows: list[LedgerRow] = []
    if table.target.coordinator and stamp.kind == "batch" and known:
        back = {p: at for p, at in returned_topics(known.retired, stamp.topics).items() if p in stamp.position}
        back = {p: at for p, at in back.items() if p not in known.positions}
        rows = _of_kind(replace(blank, answer=RETURNED), "noted", {p: OffsetRange(0, at) for p, at in back.items()})
        known = replace(known, positions={**known.positions, **back})
    rows += _unknown(stamp, known, blank, table.target)
    if table.target.coordinator and stamp.kind == "batch" and known:
        gone = {p: OffsetRange(0, at) for p, at in known.positions.items() if p not in stamp.position}
        rows += _of_kind(replace(blank, answer=RETIRED), "noted", gone)
    if stamp.kind == "batch":
        batch = _batch(stamp, known, blank)
        if batch and blank.anchor and stamp.event_time and stamp.event_time.batch.periods:
            batch[0] = replace(batch[0], late=stamp.event_time.batch.periods)
        rows += batch
    elif stamp.kind == "accept":
        rows += _answer(stamp, known, blank)
    return rows, FillCheckpoint(
        stamped.sequence, stamped.snapshot_id, dict(stamp.position), stamp.totals, stamp.retired
    )


def _batch(stamp: Stamp, known: FillCheckpoint | None, blank: LedgerRow) -> list[LedgerRow]:
    if stamp.parts:
        # Built directly: `replace` takes twice as long, and a first filling makes hundreds of thousands of rows.
        who = (blank.stream, blank.table, blank.table_uuid, blank.anchor, blank.kind)
        when = (blank.epoch, blank.batch, blank.sequence, blank.snapshot_id, blank.committed_at, blank.config)
        return [
            LedgerRow(
                *(*who, p, OffsetRange(part.stood, stamp.position[p]), *when, blank.generation, part.counts),
                elsewhere=part.elsewhere,
            )
            for p, part in stamp.parts.items()
        ]
    before = _before(stamp, known)
    ranges = {p: OffsetRange(before[p], at) for p, at in stamp.position.items() if before[p] < at}
    counts = stamp.counts
    if not blank.anchor:
        # Earlier versions put the coordinator's counts on the dead letters' stamps, too.
        rows = stamp.rows.get(blank.table, 0)
        counts = Counts(read=rows, dead=rows)
    return _sharing(blank, ranges, counts)


def _sharing(blank: LedgerRow, ranges: Ranges, counts: Counts) -> list[LedgerRow]:
    """Rows for ranges whose counts are only known as a sum."""
    if len(ranges) == 1:
        ((partition, range_),) = ranges.items()
        return [replace(blank, partition=partition, range=range_, counts=counts)]
    rows = [replace(blank, partition=partition, range=range_) for partition, range_ in ranges.items()]
    if ranges or counts != Counts():
        rows.append(replace(blank, counts=counts))
    return rows


def _answer(stamp: Stamp, known: FillCheckpoint | None, blank: LedgerRow) -> list[LedgerRow]:
    blank = replace(blank, note=stamp.note)
    decision = stamp.decision
    if decision is None:
        ranges = _moved(stamp, known)
        rows = _of_kind(blank, "passed", ranges[0]) + _of_kind(blank, "again", ranges[1])
    else:
        blank = replace(blank, answer=decision.answer)
        rows = _removed(blank, decision)
        rows += _of_kind(blank, "passed", decision.passed) + _of_kind(blank, "again", decision.again)
    return rows or [replace(blank, kind="noted")]


def _removed(blank: LedgerRow, decision: Decision) -> list[LedgerRow]:
    if decision.since is None:
        return []
    blank = replace(blank, since=decision.since)
    # Written without any range as well: everything after `since` is void nevertheless.
    return _of_kind(blank, "removed", decision.removed or {WHOLE_TABLE: NO_RANGE})


def _of_kind(blank: LedgerRow, kind: Kind, ranges: Ranges) -> list[LedgerRow]:
    return [replace(blank, kind=kind, partition=p, range=range_) for p, range_ in sorted(ranges.items())]


def _moved(stamp: Stamp, known: FillCheckpoint | None) -> tuple[Ranges, Ranges]:
    """Ranges that an answer of an earlier version passed over and gave back, by its positions."""
    before = known.positions if known else {}
    both = {p: (before[p], at) for p, at in stamp.position.items() if p in before}
    passed = {p: OffsetRange(was, now) for p, (was, now) in both.items() if was < now}
    return passed, {p: OffsetRange(now, was) for p, (was, now) in both.items() if was > now}


def _before(stamp: Stamp, known: FillCheckpoint | None) -> dict[TopicPartition, int]:
    """Position of the table before the stamp, for the partitions in the stamp."""
    if stamp.kind == "batch" and not stamp.parts:
        at_hand = known.positions if known else {}
        return {p: min(at, max(stamp.start.get(p, at), at_hand.get(p, 0))) for p, at in stamp.position.items()}
    before = dict(stamp.position)
    before |= {partition: part.stood for partition, part in stamp.parts.items()}
    if stamp.decision:
        before |= {p: range_.end for p, range_ in stamp.decision.again.items()}
        before |= {p: range_.start for p, range_ in stamp.decision.passed.items()}
    elif stamp.kind == "accept" and known:
        before |= {p: at for p, at in known.positions.items() if p in before}
    return before


def _unknown(stamp: Stamp, known: FillCheckpoint | None, blank: LedgerRow, target: TargetSpec) -> list[LedgerRow]:
    """Rows for stamps that expired before they were filled in."""
    blank = replace(blank, kind="unknown")
    since = stamp.decision.since if stamp.decision else None
    if since is not None:
        # After a rollback the running totals go on as if there had been none.
        seen = known.sequence if known else 0
        return [blank] if seen < since else []
    totals = known.totals if known else Counts()
    # Totals as stamped; earlier versions put the coordinator's counts on the dead letters' stamps, too.
    missing = stamp.totals - stamp.counts - totals
    positions = known.positions if known else {}
    before = _before(stamp, known)
    differing = {
        p: OffsetRange(min(positions[p], at), max(positions[p], at))
        for p, at in before.items()
        if p in positions and positions[p] != at
    }
    if missing == Counts():
        # Targets other than the coordinator pass over foreign records without a stamp.
        return _of_kind(blank, "unknown", differing) if blank.anchor else []
    differing |= {p: OffsetRange(0, at) for p, at in before.items() if p not in positions and at}
    if blank.anchor and stamp.in_bitmaps:
        # The sums do not show how many of the records became rows of this table.
        return _of_kind(blank, "unknown", differing)
    if not blank.anchor:
        missing = Counts.of_rows(missing.rows(target.role), target.role)
    return _sharing(blank, differing, missing)
