"""What the stamps of streams say that the ledger does not have yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.history import history, stamped_snapshots
from jobs.spec.models import StreamSpec
from jobs.verify.ledger_marks import FILLED_PREFIX, known_of, known_text
from jobs.verify.ledger_reading import Known, LedgerTable, Stamped, rows_of
from jobs.verify.ledger_row import LedgerRow
from jobs.verify.ledger_table import to_arrow

_ROWS_AT_ONCE = 20_000


@dataclass(slots=True)
class News:
    """What the ledger lacks; rows are kept as Arrow, since there may be millions at the first filling.

    Attributes:
        properties: How far the ledger is with these rows, by stream; none if it lacks nothing.
    """

    properties: dict[str, str] = field(default_factory=dict)
    blocks: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    unknown: int = 0

    def take(self, rows: list[LedgerRow]) -> None:
        """Adds rows to it."""
        if rows:
            self.rows += len(rows)
            self.unknown += sum(row.kind == "unknown" for row in rows)
            self.blocks.append(to_arrow(rows))


def news_of(catalog: Catalog, ledger: Table | None, specs: Sequence[StreamSpec]) -> News:
    """What is new in the stamps of these streams' tables.

    Args:
        ledger: As it is now; None if there is none yet.
    """
    news = News()
    rows: list[LedgerRow] = []
    for spec in specs:
        known = known_of(ledger.metadata.properties, spec.stream) if ledger else {}
        before = news.rows + len(rows)
        for table, metadata in tables_of(catalog, spec):
            for stamped in _stamped(metadata, spec.stream, known.get(table.uuid)):
                made, known[table.uuid] = rows_of(stamped, known.get(table.uuid), table)
                rows += made
                if len(rows) >= _ROWS_AT_ONCE:
                    news.take(rows)
                    rows = []
        # Claims alone make no row, and are no reason to commit.
        if news.rows + len(rows) > before:
            news.properties[FILLED_PREFIX + spec.stream] = known_text(known)
    news.take(rows)
    return news


def tables_of(catalog: Catalog, spec: StreamSpec) -> list[tuple[LedgerTable, TableMetadata]]:
    """The stream's tables, of those that are there."""
    found: list[tuple[LedgerTable, TableMetadata]] = []
    for target in spec.targets:
        try:
            metadata = catalog.load_table(target.name).metadata
        except (NoSuchTableError, NoSuchNamespaceError):
            continue
        found.append((LedgerTable(target, str(metadata.table_uuid)), metadata))
    return found


def _stamped(metadata: TableMetadata, stream: str, known: Known | None) -> Iterator[Stamped]:
    """The stamps after what is known, oldest first; the newest also if its snapshot has expired."""
    after = known.sequence if known else -1
    none = True
    for snapshot, stamp in stamped_snapshots(metadata, stream, after):
        none = False
        yield Stamped(stamp, snapshot.snapshot_id, snapshot.sequence_number or 0, _instant(snapshot.timestamp_ms))
    if not none:
        return
    past = history(metadata, stream)
    newest = past.newest
    if newest and newest.sequence > after and past.stamped_ancestor is None and not past.rolled_back:
        # When is not known any more; not later than what came after it.
        later = [each.timestamp_ms for each in metadata.snapshots if (each.sequence_number or 0) > newest.sequence]
        yield Stamped(newest, 0, newest.sequence, _instant(min(later, default=metadata.last_updated_ms)))


def _instant(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
