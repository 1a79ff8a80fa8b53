"""Snapshot summaries compared with stamps, for a table whose rows do not say where they came from."""

from __future__ import annotations

from collections import defaultdict

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.branch import branch_of
from jobs.commit.lineage import ancestors
from jobs.commit.offsets import TopicPartition
from jobs.commit.reissue import last_remade
from jobs.verify.audit_ranges import BatchRange
from jobs.verify.audit_result import AuditProblem
from jobs.verify.audit_totals import AuditTotals
from jobs.verify.expected_rows import ExpectedRows


def compare_summaries(table: Table, found: ExpectedRows, after: int, totals: AuditTotals) -> None:
    """Compare each batch's rows with what Iceberg says that its snapshot added.

    It shows that every batch landed whole and once, and nothing of what became of its rows later.

    Args:
        after: Batches up to this sequence number were looked at before.
    """
    batches: dict[int, list[tuple[TopicPartition, BatchRange]]] = defaultdict(list)
    for group in found.all_groups():
        for batch in group.batches:
            if batch.sequence > after:
                batches[batch.snapshot_id].append((group.partition, batch))
    left_out = _left_out(table.metadata, branch_of(table))
    for snapshot_id, landed in batches.items():
        rows = sum(batch.rows or 0 for _, batch in landed)
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        if snapshot_id in left_out and rows:
            added = 0
            sentence = f"snapshot {snapshot_id}, which landed {rows:,} rows, is not in the table's history any more"
        elif snapshot is None or snapshot.summary is None or any(batch.rows is None for _, batch in landed):
            totals.table(found.table).unchecked += 1
            continue
        else:
            added = int(snapshot.summary.additional_properties.get("added-records", 0))
            sentence = f"snapshot {snapshot_id} added {added:,} rows, and its stamp says that {rows:,} were landed"
        if added != rows:
            kind = "missing" if added < rows else "unexpected"
            partition, ranges = landed[0][0], tuple(batch.range for _, batch in landed)
            totals.audit.problems.append(
                AuditProblem(kind, found.table, partition, ranges[0], abs(rows - added), sentence, ranges, exact=False)
            )


def _left_out(metadata: TableMetadata, branch: str) -> set[int]:
    """Snapshots that are kept, and are no ancestors of main's head though ancestors as old as they are kept, too.

    What a branch was before it was remade is no ancestor, and its rows stand there.
    """
    along = {each.snapshot_id: each.sequence_number or 0 for each in ancestors(metadata)}
    oldest = min(along.values(), default=0)
    if (remade := last_remade(metadata, branch)) is not None and remade.last in along.values():
        oldest = max(oldest, remade.last)
    return {
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in along and (each.sequence_number or 0) > oldest
    }
