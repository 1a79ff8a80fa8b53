"""Audited tables of a stream, with the ledger's expected rows since their last audit, or altogether."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.proof.audit.audit_result import AuditProblem, StreamAudit, TableAudit
from jobs.proof.audit.expected_rows import ExpectedRows, expected_rows
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.proof.audit.other_writers import foreign_snapshots_since
from jobs.proof.audit.replayed_rows import of_failed_records
from jobs.proof.audit.stop_checks import unanswered_rollback
from jobs.streaming.driver.context.source_topics import parked_tables, readable_table
from jobs.tables.commit.history.branch import branch_of
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.history.reissue import last_remade
from jobs.tables.commit.protocol.refusals import is_there
from jobs.tables.commit.stamp.expired_changes import expired_changes
from jobs.tables.commit.stamp.offsets import Positions
from jobs.tables.dead_letter_table.retention import EXPIRED_BEFORE
from jobs.tables.ledger.ledger_checkpoints import AuditCheckpoint, audit_checkpoints
from jobs.tables.ledger.ledger_row import WHOLE_TABLE, LedgerRow
from jobs.tables.ledger.ledger_table import read_ledger
from jobs.tables.ledger.row_counter import RowCounter, missing_column

# Dead letters have the time when their batch was planned, and are recorded when it is committed.
_BATCH_AT_MOST = timedelta(days=1)


@dataclass(slots=True)
class AuditedTable:
    """One audited table of the stream.

    Attributes:
        table: The table; None if it does not exist.
        after: Sequence number through which its rows were counted before; 0 to count all.
        audited_through: Sequence number through which it was audited before; None without an audit.
        counted_in: Snapshot of the earlier counts, if others have changed rows since.
        begins: First offset without expired rows, by partition; empty for most tables.
    """

    target: TargetSpec
    table: Table | None
    expected: ExpectedRows
    facts: TableAudit
    after: int = 0
    audited_through: int | None = None
    counted_in: int | None = None
    begins: Positions = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Full name of the table."""
        return self.target.name

    @property
    def columns(self) -> tuple[str, str, str]:
        """Names of the columns of topic, partition and offset."""
        return self.target.coordinates

    def rows_of(self, stream: str) -> str | None:
        """Stream whose rows count, if the table may have rows of others; None if all count."""
        return stream if self.target.role == "dead_letters" else None

    def counter(self, stream: str, on_rows: Callable[[int], None]) -> RowCounter | None:
        """Counter of its rows; None if they lack coordinates."""
        if self.table is None or missing_column(self.table, self.columns):
            return None
        # Dead letters of discards and of suspended tables belong to landed rows, and are counted separately.
        also = of_failed_records(self.table) if self.target.role == "dead_letters" else None
        return RowCounter(self.table, self.columns, stream=self.rows_of(stream), also=also, on_rows=on_rows)


def load_audited_tables(
    spec: StreamSpec, settings: Settings, catalog: Catalog, wanted: Sequence[TargetSpec], found: StreamAudit
) -> list[AuditedTable]:
    """Load the tables, fill the ledger, and follow it; problems are added to `found`.

    Args:
        wanted: Targets, the coordinator before the others.
    """
    # Loaded before the ledger is filled: it then has all that these versions of the tables hold, and later entries are
    # ignored. The coordinator comes first, as it is committed first.
    tables = {target.name: readable_table(spec, catalog, target.name, target.branch) for target in wanted}
    uuids = {name: str(table.metadata.table_uuid) if table is not None else None for name, table in tables.items()}
    found.recorded = fill_ledger(catalog, settings, [spec]).rows
    checkpoints: dict[str, AuditCheckpoint] = {}
    if not found.full:
        by_uuid = audit_checkpoints(catalog, settings, spec.stream)
        for name, table in tables.items():
            checkpoint = by_uuid.get(uuids[name] or "")
            if table is not None and checkpoint is not None and _counts_still(name, table, checkpoint, found):
                checkpoints[name] = checkpoint

    def rows_after(name: str, sequence: int | None = None) -> list[LedgerRow]:
        return read_ledger(catalog, settings, spec.stream, name, sequence, uuids[name])

    rows = {
        # A recreated table counts its sequence numbers from 1 again.
        name: [row for row in rows_after(name, checkpoints[name].sequence) if row.table_uuid == uuids[name]]
        if name in checkpoints
        else rows_after(name)
        for name in tables
    }
    begins = {name: each.positions for name, each in checkpoints.items() if each.positions or not each.sequence}
    if (
        len(begins) < sum(table is not None for table in tables.values())
        or found.since is not None
        or any(_reaches_back(rows[name], checkpoint) for name, checkpoint in checkpoints.items())
    ):
        # Everything is followed again, because an answer concerns audited records, or the beginning is unknown.
        rows = {name: rows_after(name) for name in tables}
        begins = {}
    followed: list[AuditedTable] = []
    parked = parked_tables(spec, catalog)
    for target in wanted:
        table, name = tables[target.name], target.name
        # A table that may not be read exists, but its content is unknown.
        was_there = table is None and (bool(rows[name]) or is_there(catalog, name))
        if table is None and name in parked and not was_there:
            followed.append(AuditedTable(target, None, ExpectedRows(target), TableAudit(target)))
        elif table is None:
            followed.append(_absent(target, spec, catalog, found, was_there=was_there))
        else:
            followed.append(_followed(target, table, rows[name], checkpoints.get(name), begins.get(name), found))
    # Only the coordinator records that a topic was retired, so that a later one's dead letters reuse coordinates.
    again = {row.partition for each in rows.values() for row in each if row.answer == "retired"}
    for each in followed:
        if not each.target.coordinator:
            kept = [p for p in each.expected.problems if p.kind != "overlap" or p.partition not in again]
            each.expected.problems[:] = kept
    return followed


def _counts_still(name: str, table: Table, checkpoint: AuditCheckpoint, found: StreamAudit) -> bool:
    """Whether the table still has what was counted then, apart from later rows.

    An expired snapshot proves nothing; then the stamps show whether the table was rolled back or replaced. An existing
    snapshot that is no ancestor of main's head means that the counted rows may be missing.
    """
    if unanswered_rollback(name, table, found.stream):
        return False
    counted_in = checkpoint.snapshot_id
    remade = last_remade(table.metadata, branch_of(table))
    if remade is not None and checkpoint.at.timestamp() * 1000 < remade.at_ms:
        # Others' earlier changes of main are on the branch since, and no newer snapshot shows them.
        found.notes.append(f"table {name} was counted from its first batch on: its branch was rebased onto main since")
        return False
    if table.metadata.snapshot_by_id(counted_in) is None or _on_main(table.metadata, counted_in):
        return True
    said = f"snapshot {counted_in}, in which it was audited last, is not in its history any more"
    found.notes.append(f"table {name} was counted from its first batch on: {said}")
    return False


def _on_main(metadata: TableMetadata, snapshot_id: int) -> bool:
    return any(each.snapshot_id == snapshot_id for each in ancestors(metadata))


def _reaches_back(rows: Iterable[LedgerRow], checkpoint: AuditCheckpoint) -> bool:
    """Whether new rows concern audited records, or a partition that goes on past its position.

    The latter is a gap, or a later topic with a retired one's name.
    """
    stood = dict(checkpoint.positions)
    for row in sorted(rows, key=lambda row: row.sequence):
        if row.kind == "removed":
            if (row.since or 0) < checkpoint.sequence:
                return True
        elif row.kind != "noted" and row.range.start < checkpoint.positions.get(row.partition, 0):
            return True
        if row.anchor and row.range.start > stood.pop(row.partition, row.range.start):
            return True
    return False


def _followed(
    target: TargetSpec,
    table: Table,
    rows: list[LedgerRow],
    checkpoint: AuditCheckpoint | None,
    begin: Positions | None,
    found: StreamAudit,
) -> AuditedTable:
    name, facts, metadata = target.name, TableAudit(target), table.metadata
    uuid = str(metadata.table_uuid)
    if former := {row.table_uuid for row in rows} - {uuid}:
        words = "a former one is" if len(former) == 1 else f"{len(former)} former ones are"
        found.notes.append(f"table {name} was dropped and recreated; {words} not audited")
    if problem := unanswered_rollback(name, table, found.stream):
        found.problems.append(problem)
    known = [
        row for row in rows if row.table_uuid == uuid and row.sequence <= getattr(metadata, "last_sequence_number", 0)
    ]
    if expired := dead_letters_expired_before(table):
        known = _without_counts(known, expired)
        before = metadata.properties[EXPIRED_BEFORE]
        found.notes.append(f"dead letters from before {before} have expired, so they are not counted")
    gone = expired_changes(metadata.properties, name)
    begins: Positions = gone.offsets if gone is not None else {}
    if gone is not None:
        known = _without_expired(known, begins)
        found.notes.append(f"changes from before {gone.before} have expired ({gone.rows:,}), so they are not counted")
    made = AuditedTable(target, table, expected_rows(target, known, begin), facts, begins=begins)
    # For these it is known why their rows are unknown.
    unknown = made.expected.unknown
    unknown[:] = [(at, range_) for at, range_ in unknown if range_.start >= begins.get(at, 0)]
    if expired:
        stamped = {(row.partition, row.range) for row in known if row.kind == "batch"}
        unknown[:] = [each for each in unknown if each not in stamped]
    if checkpoint is not None:
        facts.since = checkpoint.at
        taken = [row.since or 0 for row in known if row.kind == "removed" and row.sequence > checkpoint.sequence]
        # Rows that a rollback removed or restored may have been counted before.
        made.after = min([checkpoint.sequence, *taken])
        made.expected.sequence = max(made.expected.sequence, checkpoint.sequence)
        made.audited_through = checkpoint.sequence
        if (since := found.since) is not None:
            made.after = min(made.after, max((row.sequence for row in known if row.committed_at < since), default=0))
        elif others := foreign_snapshots_since(metadata, checkpoint.snapshot_id, checkpoint.sequence):
            made.counted_in = checkpoint.snapshot_id
            found.notes.append(_changed_by_others(found.stream, name, others))
    return made


def _absent(
    target: TargetSpec, spec: StreamSpec, catalog: Catalog, found: StreamAudit, *, was_there: bool
) -> AuditedTable:
    name = target.name
    if not was_there:
        found.notes.append(f"table {name} does not exist yet")
    elif readable_table(spec, catalog, name) is None:
        state = "may not be read" if is_there(catalog, name) else "was dropped"
        said = f"table {name} {state}; its ranges in the ledger cannot be compared with rows"
        found.problems.append(AuditProblem("not_counted", name, None, None, 0, said))
    else:
        found.notes.append(f"table {name} was created this moment")
    return AuditedTable(target, None, ExpectedRows(target), TableAudit(target))


def _changed_by_others(stream: str, table: str, others: Sequence[Snapshot]) -> str:
    newest = others[-1]
    did = newest.summary.operation.value if newest.summary else "changed"
    at = datetime.fromtimestamp(newest.timestamp_ms / 1000, UTC)
    said = f"snapshot {newest.snapshot_id} ({did}, {at:%Y-%m-%d %H:%M} UTC)"
    said += f" and {len(others) - 1:,} more" if len(others) > 1 else ""
    return (
        f"others have changed rows of table {table} since it was audited last, {said}; what had been audited was not "
        f"counted again. Next: frazil audit {stream} --full, or --since 24h"
    )


def dead_letters_expired_before(table: Table) -> datetime | None:
    """Time before which batches may lack dead letters, because they expired; None if none did."""
    expired = table.metadata.properties.get(EXPIRED_BEFORE)
    return datetime.fromisoformat(expired) + _BATCH_AT_MOST if expired else None


def _without_counts(rows: Iterable[LedgerRow], before: datetime) -> list[LedgerRow]:
    """Rows of earlier commits, without their numbers of dead letters."""
    return [
        replace(row, counts=None) if row.kind == "batch" and row.committed_at < before else row
        for row in rows
        if row.partition != WHOLE_TABLE or row.kind != "batch" or row.committed_at >= before
    ]


def _without_expired(rows: Iterable[LedgerRow], begins: Positions) -> list[LedgerRow]:
    """Rows of batches with expired changes, without their numbers of rows.

    Args:
        begins: First offset from which all changes exist, by partition.
    """
    return [
        replace(row, counts=None) if row.kind == "batch" and row.range.start < begins.get(row.partition, 0) else row
        for row in rows
        if row.partition != WHOLE_TABLE or row.kind != "batch"
    ]
