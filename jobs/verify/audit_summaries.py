"""Auditing a table whose rows do not say where they came from: rows per batch, by the summaries of its snapshots."""

from __future__ import annotations

from collections import defaultdict

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify.audit import Expected
from jobs.verify.audit_facts import Problem
from jobs.verify.audit_report import Book


def by_summaries(table: Table, found: Expected, after: int, book: Book) -> None:
    """Hold each batch's rows against what Iceberg says that its snapshot added.

    It shows that every batch landed whole and once, and nothing of what became of its rows later.

    Args:
        after: Batches up to this sequence number were looked at before.
    """
    said: dict[int, int] = defaultdict(int)
    where: dict[int, list[tuple[TopicPartition, OffsetRange]]] = defaultdict(list)
    unsaid: set[int] = set()
    for unit in found.all_units():
        for reading in unit.readings:
            if reading.sequence <= after:
                continue
            where[reading.snapshot_id].append((unit.partition, reading.range))
            if reading.rows is None:
                unsaid.add(reading.snapshot_id)
            said[reading.snapshot_id] += reading.rows or 0
    facts = book.tables[found.table]
    left_out = _left_out(table.metadata)
    for snapshot_id, rows in said.items():
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        if snapshot_id in left_out and rows:
            partition, range_ = where[snapshot_id][0]
            sentence = f"snapshot {snapshot_id}, which landed {rows:,} rows, is not in the table's history any more"
            ranges = tuple(range_ for _, range_ in where[snapshot_id])
            book.audit.problems.append(
                Problem("missing", found.table, partition, range_, rows, sentence, ranges, exact=False)
            )
            continue
        if snapshot is None or snapshot.summary is None or snapshot_id in unsaid:
            facts.unchecked += 1
            continue
        added = int(snapshot.summary.additional_properties.get("added-records", 0))
        if added == rows:
            continue
        partition, range_ = where[snapshot_id][0]
        sentence = f"snapshot {snapshot_id} added {added:,} rows, and its stamp says that {rows:,} were landed"
        kind = "missing" if added < rows else "unexpected"
        ranges = tuple(range_ for _, range_ in where[snapshot_id])
        book.audit.problems.append(
            Problem(kind, found.table, partition, range_, abs(rows - added), sentence, ranges, exact=False)
        )


def _left_out(metadata: TableMetadata) -> set[int]:
    """Snapshots that are kept, and are no ancestors of main's head though ancestors as old as they are kept, too."""
    by_id = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    head = metadata.refs.get(MAIN_BRANCH)
    current = by_id.get(head.snapshot_id) if head else None
    along: dict[int, int] = {}
    while current is not None:
        along[current.snapshot_id] = current.sequence_number or 0
        current = by_id.get(current.parent_snapshot_id or -1)
    oldest = min(along.values(), default=0)
    return {each for each, snapshot in by_id.items() if each not in along and (snapshot.sequence_number or 0) > oldest}
