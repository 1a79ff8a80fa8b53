"""Rows of the ledger about one offset, snapshot or partition: those that it has, and those that it would get now.

Nothing is written: who looks needs no right to write, and meets no other writer.
"""

# PyIceberg's conditions take a column and a value, which a type checker does not see.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import (
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    LessThanOrEqual,
    NotEqualTo,
    Or,
)
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.offsets import TopicPartition
from jobs.commit.stamp_history import stamped_snapshots
from jobs.spec.settings import Settings
from jobs.spec.targets import TargetSpec
from jobs.time_travel.reading import instant
from jobs.verify.ledger_checkpoints import FillCheckpoint
from jobs.verify.ledger_fill import filled_through, rows_to_fill
from jobs.verify.ledger_row import LedgerRow
from jobs.verify.ledger_table import find_ledger, ledger_from_arrow
from jobs.verify.stamp_conversion import StampedSnapshot, StampedTable, ledger_rows

if TYPE_CHECKING:
    from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """What the ledger says of a stream's tables, and what their stamps say that it does not have yet.

    Attributes:
        stream: Its id.
        ledger: None if nothing was ever filled in, or if a branch is looked at that it does not know.
        tables: The stream's, with their stamps.
        known: Whether these are the branches that the ledger knows.
    """

    stream: str
    ledger: Table | None
    tables: Sequence[tuple[StampedTable, TableMetadata]]
    known: bool = True

    def of_offset(self, partition: TopicPartition, offset: int) -> list[LedgerRow]:
        """All rows but those of batches that do not hold the offset; see `offset_history`."""
        topic, number = partition
        holds = And(
            EqualTo("topic", topic),
            EqualTo("partition", number),
            LessThanOrEqual("start_offset", offset),
            GreaterThan("end_offset", offset),
        )

        def wanted(row: LedgerRow) -> bool:
            return row.kind != "batch" or (row.partition == partition and row.range.start <= offset < row.range.end)

        return self._rows(Or(NotEqualTo("kind", "batch"), holds), wanted)

    def of_snapshot(self, snapshot_id: int) -> list[LedgerRow]:
        """The rows of one commit."""
        return self._rows(EqualTo("snapshot_id", snapshot_id), lambda row: row.snapshot_id == snapshot_id)

    def first_offset(self, uuid: str, partition: TopicPartition) -> int | None:
        """The least offset that any row of a table has of a partition; None if it was never read."""
        first = [row.range.start for row in self._newer() if row.partition == partition and row.table_uuid == uuid]
        if self.ledger is not None:
            its = And(
                EqualTo("stream", self.stream),
                EqualTo("table_uuid", uuid),
                EqualTo("topic", partition.topic),
                EqualTo("partition", partition.partition),
                # Answers that give a range back name it from 0, where a topic may begin later.
                Or(EqualTo("kind", "batch"), EqualTo("kind", "passed")),
            )
            found = self.ledger.scan(row_filter=its, selected_fields=("start_offset",)).to_arrow()
            least = pc.min(found.column("start_offset")).as_py()  # pyright: ignore[reportAttributeAccessIssue]
            first += [] if least is None else [least]
        return min(first, default=None)

    def _rows(self, condition: BooleanExpression, wanted: Callable[[LedgerRow], bool]) -> list[LedgerRow]:
        rows = [row for row in self._newer() if wanted(row)]
        if self.ledger is not None:
            scan = self.ledger.scan(row_filter=And(EqualTo("stream", self.stream), condition))
            rows += ledger_from_arrow(scan.to_arrow())
        return sorted(rows, key=lambda row: row.place)

    def _newer(self) -> Iterator[LedgerRow]:
        """The rows that the ledger lacks; made anew for each question, for they may be many."""
        known: dict[str, FillCheckpoint] = {}
        if self.ledger is not None:
            known = filled_through(self.ledger, self.stream, self.tables)
        if self.known:
            for rows in rows_to_fill(self.tables, self.stream, known):
                yield from rows
            return
        # The table's properties speak of the branch that the stream writes, so the snapshots alone count.
        for table, metadata in self.tables:
            for snapshot, stamp in stamped_snapshots(metadata, self.stream):
                at, number = instant(snapshot.timestamp_ms), snapshot.sequence_number or 0
                stamped = StampedSnapshot(stamp, snapshot.snapshot_id, number, at)
                rows, known[table.uuid] = ledger_rows(stamped, known.get(table.uuid), table)
                yield from rows


def recorded_rows(
    stream: str,
    settings: Settings,
    catalog: Catalog,
    tables: Mapping[TargetSpec, TableMetadata],
    *,
    known: bool = True,
) -> RecordedRows:
    """What is recorded of a stream.

    Args:
        tables: Its tables, loaded before: what the ledger gets meanwhile is then in neither twice.
        known: Whether these are the branches that the ledger knows; of others the stamps alone tell.
    """
    stamped = [(StampedTable(target, str(metadata.table_uuid)), metadata) for target, metadata in tables.items()]
    return RecordedRows(stream, find_ledger(catalog, settings) if known else None, stamped, known)
