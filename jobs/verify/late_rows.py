"""Late rows of hours and days: by the stamps that are kept, and by the ledger for those that have expired."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pyiceberg.table.metadata import TableMetadata

from jobs.commit.stamp_history import stamped_snapshots
from jobs.verify.ledger_row import LedgerRow, effective_rows
from jobs.verify.period_rows import Period

# An event may be ahead of the clock by as much: a late one of its hour comes so much before the hour begins.
_AHEAD = timedelta(days=2)

LateRowsInLedger = Callable[[datetime], Sequence[LedgerRow]]
"""Given a time, the rows of the ledger that tell of late rows of commits since then, and of rollbacks."""


def late_rows(
    metadata: TableMetadata, stream: str, periods: Sequence[Period], ledger: LateRowsInLedger
) -> dict[int, int]:
    """How many rows of each hour or day came behind the watermark, by its begin.

    Args:
        metadata: Of the table, on the branch that the stream writes.
        stream: Whose stamps tell of them.
        periods: One at least.
        ledger: Asked only where stamps that may tell of them have expired.
    """
    kept = list(stamped_snapshots(metadata, stream))
    told = [stamp.event_time.batch.periods for _, stamp in kept if stamp.event_time]
    begin = datetime.fromtimestamp(min(start for start, _ in periods) / 1000, UTC) - _AHEAD
    if not kept or min(snapshot.timestamp_ms for snapshot, _ in kept) > begin.timestamp() * 1000:
        first = min((snapshot.sequence_number or 0 for snapshot, _ in kept), default=None)
        told += _expired(ledger(begin), first)
    return _summed(told, periods)


def _expired(rows: Iterable[LedgerRow], first: int | None) -> list[Mapping[int, int]]:
    """What the ledger tells of the commits before the first that is kept, without those that a rollback took out."""
    return [row.late for row in effective_rows(rows) if row.late and (first is None or row.sequence < first)]


def _summed(told: Iterable[Mapping[int, int]], periods: Sequence[Period]) -> dict[int, int]:
    late = {start: 0 for start, _ in periods}
    for each in told:
        for start, rows in each.items():
            if start in late:
                late[start] += rows
    return late
