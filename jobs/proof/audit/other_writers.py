"""Other writers' changes of landed rows: a range is counted before and after each of their snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from jobs.proof.audit.audit_ranges import OffsetRanges, slice_of_range
from jobs.proof.audit.audit_result import AuditProblem, ForeignChange
from jobs.tables.commit.history.discards import DISCARDED_KEY
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange
from jobs.tables.commit.stamp.stamps import BACKFILL_KEY, SUMMARY_KEY
from jobs.tables.ledger.row_counter import WINDOW_OFFSETS, RowCounter

MAX_PROBLEMS = 50
# Most snapshots; each costs two scans of the files of the ranges in question.
MAX_SNAPSHOTS = 30
_OF_ROWS = frozenset({"missing", "doubled", "unexpected", "misrouted"})


def foreign_snapshots(metadata: TableMetadata) -> list[Snapshot]:
    """Snapshots along main without a stamp of frazil, oldest first; those of a backfill change no row's existence."""
    own = {SUMMARY_KEY, BACKFILL_KEY, DISCARDED_KEY}
    summaries = [(each, each.summary) for each in ancestors(metadata)]
    found = [each for each, said in summaries if said is not None and own.isdisjoint(said.additional_properties)]
    return found[::-1]


def foreign_snapshots_since(metadata: TableMetadata, snapshot_id: int, sequence: int) -> list[Snapshot]:
    """Snapshots along main, newer than an audit, by which others may have added or removed rows; oldest first.

    Compaction rewrites rows and changes none.

    Args:
        snapshot_id: Snapshot of the audit's counts.
        sequence: Sequence number of its last commit, used if that snapshot has expired.
    """
    counted = metadata.snapshot_by_id(snapshot_id)
    after = counted.sequence_number or 0 if counted is not None else sequence
    return [each for each in foreign_snapshots(metadata) if (each.sequence_number or 0) > after and not _is_ours(each)]


def _is_ours(snapshot: Snapshot) -> bool:
    summary = snapshot.summary
    if summary is None:
        return False
    # Dead letters that expire or change their state are rewritten without a stamp.
    return summary.operation is Operation.REPLACE or any(
        key.startswith("frazil.") for key in summary.additional_properties
    )


def with_foreign_changes(
    problems: Iterable[AuditProblem], table: Table, columns: tuple[str, str, str], stream: str | None
) -> list[AuditProblem]:
    """The problems with other writers' changes to their rows, as far as their snapshots exist.

    Args:
        problems: Problems of this table.
        columns: Names of the topic, partition and offset columns.
        stream: Only rows with this value in column `stream`.
    """
    every = foreign_snapshots(table.metadata)
    # An append removes nothing: with missing rows it must not displace snapshots that did.
    took_out = [each for each in every if each.summary is None or each.summary.operation is not Operation.APPEND]
    explained: list[AuditProblem] = []
    for number, problem in enumerate(problems):
        of_rows = problem.kind in _OF_ROWS and problem.partition is not None and problem.range is not None
        others = (took_out if problem.kind == "missing" else every)[-MAX_SNAPSHOTS:]
        if others and of_rows and number < MAX_PROBLEMS:
            problem = _explained(problem, others, table, columns, stream)
        explained.append(problem)
    return explained


def _explained(
    problem: AuditProblem, others: list[Snapshot], table: Table, columns: tuple[str, str, str], stream: str | None
) -> AuditProblem:
    changes: list[ForeignChange] = []
    taken = OffsetRanges()
    assert problem.range is not None
    base = problem.where[0].start if problem.exact and problem.where else problem.range.start
    wanted = _wanted(problem, base)
    for snapshot in others:
        parent = table.metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
        if snapshot.summary is None or (snapshot.parent_snapshot_id is not None and parent is None):
            continue
        change = 0
        after = RowCounter(table, columns, stream=stream, snapshot_id=snapshot.snapshot_id)
        before = RowCounter(table, columns, stream=stream, snapshot_id=parent.snapshot_id) if parent else None
        for window in _windows(problem):
            difference = after.count([window])[0].astype(np.int16)
            if before is not None:
                difference -= before.count([window])[0]
            if wanted is not None:
                difference[~wanted[slice_of_range(window.range, base)]] = 0
            change += int(difference.sum(dtype=np.int64))
            taken.add(np.flatnonzero(difference < 0), window.range.start)
        if change:
            at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
            changes.append(ForeignChange(snapshot.snapshot_id, snapshot.summary.operation.value, at, change))
    changed = replace(problem, changes=tuple(changes))
    offsets = sum(end - start for start, end in taken.kept)
    if changed.explained and not problem.exact and not taken.more and offsets == problem.records:
        # Others removed exactly the missing rows, whose offsets are known.
        return replace(changed, where=tuple(sorted(taken.kept)), exact=True)
    return changed


def _windows(problem: AuditProblem) -> Iterator[PartitionRange]:
    """Offsets in question; the whole range if they are among others, which is always enough."""
    assert problem.partition is not None and problem.range is not None
    exact = problem.exact and problem.where
    start, end = (problem.where[0].start, problem.where[-1].end) if exact else problem.range
    for at in range(start, end, WINDOW_OFFSETS):
        yield PartitionRange(problem.partition, OffsetRange(at, min(end, at + WINDOW_OFFSETS)))


def _wanted(problem: AuditProblem, base: int) -> np.ndarray | None:
    """Which offsets from `base` on are in question, found in one scan of the files; None: all."""
    if not (problem.exact and problem.where):
        return None
    wanted = np.zeros(problem.where[-1].end - base, bool)
    for range_ in problem.where:
        wanted[slice_of_range(range_, base)] = True
    return wanted
