"""Who changed rows after they had landed: a range is counted before and after each snapshot that is not frazil's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from jobs.commit.offsets import OffsetRange
from jobs.commit.stamps import SUMMARY_KEY
from jobs.verify.audit_count import Ranges
from jobs.verify.audit_facts import Change, Problem
from jobs.verify.table_rows import WINDOW_OFFSETS, Piece, RowCounter

MAX_PROBLEMS = 50
# Each costs two looks at the files of the ranges in question.
MAX_SNAPSHOTS = 30
_OF_ROWS = frozenset({"missing", "doubled", "unexpected"})


def others_snapshots(metadata: TableMetadata) -> list[Snapshot]:
    """Snapshots along main that no stamp of frazil is on, oldest first."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    head = metadata.refs.get(MAIN_BRANCH)
    current = by_id.get(head.snapshot_id) if head else None
    found: list[Snapshot] = []
    while current is not None:
        if current.summary is not None and SUMMARY_KEY not in current.summary.additional_properties:
            found.append(current)
        current = by_id.get(current.parent_snapshot_id or -1)
    return found[::-1]


def with_changes(
    problems: Iterable[Problem], table: Table, columns: tuple[str, str, str], stream: str | None
) -> list[Problem]:
    """The problems, each with what others did to its rows, as far as their snapshots are kept.

    Args:
        problems: Of this table.
        columns: Names of the columns of topic, partition and offset.
        stream: Only rows whose column `stream` says so.
    """
    others = others_snapshots(table.metadata)[-MAX_SNAPSHOTS:]
    told: list[Problem] = []
    for number, problem in enumerate(problems):
        of_rows = problem.kind in _OF_ROWS and problem.partition is not None and problem.range is not None
        if others and of_rows and number < MAX_PROBLEMS:
            problem = _explained(problem, others, table, columns, stream)
        told.append(problem)
    return told


def _explained(
    problem: Problem, others: list[Snapshot], table: Table, columns: tuple[str, str, str], stream: str | None
) -> Problem:
    changes: list[Change] = []
    taken = Ranges()
    for snapshot in others:
        parent = table.metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
        if snapshot.summary is None or (snapshot.parent_snapshot_id is not None and parent is None):
            continue
        change = 0
        after = RowCounter(table, columns, stream=stream, snapshot_id=snapshot.snapshot_id)
        before = RowCounter(table, columns, stream=stream, snapshot_id=parent.snapshot_id) if parent else None
        for piece in _pieces(problem):
            difference = after.count([piece])[0].astype(np.int16)
            if before is not None:
                difference -= before.count([piece])[0]
            change += int(difference.sum(dtype=np.int64))
            taken.add(np.flatnonzero(difference < 0), piece.range.start)
        if change:
            at = datetime.fromtimestamp(snapshot.timestamp_ms / 1000, UTC)
            changes.append(Change(snapshot.snapshot_id, snapshot.summary.operation.value, at, change))
    told = replace(problem, changes=tuple(changes))
    offsets = sum(end - start for start, end in taken.kept)
    if told.explained and not problem.exact and not taken.more and offsets == problem.records:
        # What others took out is what is missing, and those offsets are known.
        return replace(told, where=tuple(sorted(taken.kept)), exact=True)
    return told


def _pieces(problem: Problem) -> Iterator[Piece]:
    """The offsets in question; the whole range where they are among others, which cannot be too little."""
    assert problem.partition is not None and problem.range is not None
    for range_ in problem.where if problem.exact and problem.where else (problem.range,):
        for start in range(range_.start, range_.end, WINDOW_OFFSETS):
            yield Piece(problem.partition, OffsetRange(start, min(range_.end, start + WINDOW_OFFSETS)))
