"""Filling of the ledger: appends what it lacks of the streams' stamps as rows.

Anybody may fill it at any time. Each filling commits its rows and checkpoint together, on exactly the ledger's head on
which it decided, so concurrent fillings never write a row twice.
"""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.proof.audit.former_targets import former_targets
from jobs.streaming.driver.context.source_topics import readable_table
from jobs.tables.commit.history.stamp_history import history, stamped_snapshots
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.named_tables import with_named_tables
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import HeadMovedError
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.ledger.ledger_checkpoints import (
    FILLED_PREFIX,
    FillCheckpoint,
    fill_checkpoints_text,
    valid_fill_checkpoints,
)
from jobs.tables.ledger.ledger_row import WHOLE_TABLE, LedgerRow, effective_rows
from jobs.tables.ledger.ledger_table import (
    ensure_ledger,
    find_ledger,
    lacks_columns,
    ledger_crowded,
    ledger_from_arrow,
    ledger_to_arrow,
)
from jobs.tables.ledger.stamp_conversion import StampedSnapshot, StampedTable, ledger_rows
from jobs.tables.write.file_access import delete_unreferenced
from jobs.tables.write.target_writer import TargetWriter

log = logging.getLogger(__name__)

_ROWS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True)
class FillResult:
    """Result of a filling.

    Attributes:
        rows: Number of rows written; 0 if nothing was new.
        unknown: Number of these for stamps that had expired before they were filled in.
        snapshot_id: New snapshot of the ledger; None if nothing was new.
    """

    rows: int
    unknown: int = 0
    snapshot_id: int | None = None


@dataclass(slots=True)
class NewRows:
    """Rows that the ledger lacks, as Arrow, as a first filling may have millions.

    Attributes:
        properties: Checkpoint of the ledger with these rows, by stream; empty if it lacks nothing.
    """

    properties: dict[str, str] = field(default_factory=dict)
    blocks: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    unknown: int = 0

    def add(self, rows: list[LedgerRow]) -> None:
        """Add rows."""
        if rows:
            self.rows += len(rows)
            self.unknown += sum(row.kind == "unknown" for row in rows)
            self.blocks.append(ledger_to_arrow(rows))


def fill_ledger(catalog: Catalog, settings: Settings, specs: Sequence[StreamSpec]) -> FillResult:
    """Write new stamps of these streams' tables to the ledger, in one commit.

    Raises:
        CommitRefusedError: Others committed to the ledger during every attempt; nothing is written.
        CommitUnknownError: The outcome of the commit is unknown; the next filling finds it out.
    """

    def attempt() -> FillResult:
        ledger = find_ledger(catalog, settings)
        new = _new_rows(catalog, ledger, specs)
        if new.properties and (ledger is None or lacks_columns(ledger)):
            # Another process may create and fill it at the same moment, so the decision is repeated on its present
            # state.
            ledger = ensure_ledger(catalog, settings)
            new = _new_rows(catalog, ledger, specs)
        if ledger is None or not new.properties:
            return FillResult(0)
        files = _written(ledger, new.blocks)
        try:
            snapshot_id = commit_once(ledger, Append(files), summary={}, properties=new.properties)
        except HeadMovedError as moved:
            if moved.final:
                # Otherwise a copy of the commit may be under way, which a slow catalog may still carry out.
                delete_unreferenced(ledger.io, files)
            raise
        return FillResult(new.rows, new.unknown, snapshot_id)

    return compare_and_swap(settings.ledger.table, attempt, ledger_crowded)


def _new_rows(catalog: Catalog, ledger: Table | None, specs: Sequence[StreamSpec]) -> NewRows:
    """New rows from the stamps of these streams' tables.

    Args:
        ledger: The present ledger; None if it does not exist.
    """
    new = NewRows()
    rows: list[LedgerRow] = []
    for spec in (with_named_tables(each, catalog) for each in specs):
        tables = _existing_tables(catalog, spec)
        known = filled_through(ledger, spec.stream, tables) if ledger else {}
        before = new.rows + len(rows)
        for made in rows_to_fill(tables, spec.stream, known):
            rows += made
            if len(rows) >= _ROWS_AT_ONCE:
                new.add(rows)
                rows = []
        # Claims alone make no row, and need no commit.
        if new.rows + len(rows) > before:
            sequence = ledger.metadata.next_sequence_number() if ledger else 0
            new.properties[FILLED_PREFIX + spec.stream] = fill_checkpoints_text(known, sequence)
    new.add(rows)
    return new


def filled_through(
    ledger: Table, stream: str, tables: Sequence[tuple[StampedTable, TableMetadata]]
) -> dict[str, FillCheckpoint]:
    """How far the ledger is filled, by table uuid; after a rollback of the ledger, by its remaining rows.

    Args:
        tables: Tables of the stream, with their metadata.
    """
    known = valid_fill_checkpoints(ledger.metadata, stream)
    if known is not None:
        return known
    kept = ledger_from_arrow(ledger.scan(row_filter=EqualTo("stream", stream)).to_arrow())
    found: dict[str, FillCheckpoint] = {}
    for table, metadata in tables:
        if mine := [row for row in kept if row.table_uuid == table.uuid]:
            found[table.uuid] = _checkpoint_after(mine, metadata, stream)
    log.warning("the ledger was rolled back: what it lacks of stream %s is filled in again", stream)
    return found


def _checkpoint_after(rows: Sequence[LedgerRow], metadata: TableMetadata, stream: str) -> FillCheckpoint:
    """Checkpoint after the newest of a table's rows: by its stamp, or by the rows if that has expired."""
    newest = max(rows, key=lambda row: row.sequence)
    for snapshot, stamp in stamped_snapshots(metadata, stream, newest.sequence - 1):
        if snapshot.sequence_number == newest.sequence:
            return FillCheckpoint(
                newest.sequence, newest.snapshot_id, dict(stamp.position), stamp.totals, stamp.retired
            )
    positions: dict[TopicPartition, int] = {}
    for row in effective_rows(rows):
        if row.kind == "again":
            positions[row.partition] = row.range.start
        elif row.kind != "noted":
            positions[row.partition] = row.range.end
    positions.pop(WHOLE_TABLE, None)
    totals = sum((row.counts for row in rows if row.counts is not None), Counts())
    return FillCheckpoint(newest.sequence, newest.snapshot_id, positions, totals)


def rows_to_fill(
    tables: Iterable[tuple[StampedTable, TableMetadata]], stream: str, known: dict[str, FillCheckpoint]
) -> Iterator[list[LedgerRow]]:
    """Ledger rows of each missing stamp of these tables, oldest first.

    Args:
        known: Checkpoints by table uuid; they follow the yielded rows.
    """
    for table, metadata in tables:
        for stamped in _stamped(metadata, stream, known.get(table.uuid)):
            made, known[table.uuid] = ledger_rows(stamped, known.get(table.uuid), table)
            yield made


def _existing_tables(catalog: Catalog, spec: StreamSpec) -> list[tuple[StampedTable, TableMetadata]]:
    """Existing tables of the stream, and those that a former route named."""
    targets = [*spec.targets, *former_targets(spec, catalog)]
    tables = [(target, readable_table(spec, catalog, target.name, target.branch)) for target in targets]
    return [
        (StampedTable(target, str(table.metadata.table_uuid)), table.metadata)
        for target, table in tables
        if table is not None
    ]


def _stamped(metadata: TableMetadata, stream: str, known: FillCheckpoint | None) -> Iterator[StampedSnapshot]:
    """Stamps after the checkpoint, oldest first; the newest one even if its snapshot has expired."""
    after = known.sequence if known else -1
    expired = True
    for snapshot, stamp in stamped_snapshots(metadata, stream, after):
        expired = False
        yield StampedSnapshot(
            stamp, snapshot.snapshot_id, snapshot.sequence_number or 0, _instant(snapshot.timestamp_ms)
        )
    if not expired:
        return
    past = history(metadata, stream)
    newest = past.newest
    if newest and newest.sequence > after and past.stamped_ancestor is None and not past.rolled_back:
        # Its time is unknown, but not later than that of the following snapshots.
        later = [each.timestamp_ms for each in metadata.snapshots if (each.sequence_number or 0) > newest.sequence]
        yield StampedSnapshot(newest, 0, newest.sequence, _instant(min(later, default=metadata.last_updated_ms)))


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _written(ledger: Table, blocks: Sequence[pa.RecordBatch]) -> list[DataFile]:
    writer = TargetWriter(ledger.metadata, ledger.io, file_prefix=f"ledger-{uuid.uuid4().hex}")
    try:
        for block in blocks:
            writer.write(block)
        return writer.close()
    except BaseException:
        writer.abort()
        raise
