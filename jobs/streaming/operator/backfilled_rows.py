"""Refusal of a reset that would double rows of a backfill, which every later audit would report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.catalog import Catalog

from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.streaming.operator.backfill_stream import backfill_id
from jobs.streaming.operator.reset_request import ResetRequest
from jobs.tables.commit.history.stamp_history import stamps_along_main
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.reset import ResetMove, ResetRefusedError
from jobs.tables.commit.stamp.offsets import OffsetRange, PartitionRange
from jobs.tables.ledger.ledger_row import effective_rows
from jobs.tables.ledger.ledger_table import read_ledger
from jobs.tables.ledger.row_counter import RowCounter, missing_column


def refusal_of_backfilled(
    spec: StreamSpec,
    settings: Settings,
    catalog: Catalog,
    targets: Mapping[str, Target],
    request: ResetRequest,
    moves: Iterable[ResetMove],
) -> ResetRefusedError | None:
    """Why offsets must not be read again yet: a table has rows of them that a backfill has landed.

    Args:
        spec: The stream.
        settings: Where the ledger is.
        catalog: The catalog.
        targets: The stream's tables by name, as they are now.
        request: The reset, for the command that shows how to remove the rows.
        moves: What it does to each partition.

    Returns:
        None if no table has such rows. Tables whose rows do not say their offsets are not looked at: an audit goes by
        the stamps there.
    """
    again = {move.partition: move.range for move in moves if move.again}
    if not again:
        return None
    concerned: list[PartitionRange] = []
    for partition, (start, end) in _backfilled(spec, settings, catalog, targets[spec.coordinator]):
        if (asked := again.get(partition)) is not None and max(start, asked.start) < min(end, asked.end):
            concerned.append(PartitionRange(partition, OffsetRange(max(start, asked.start), min(end, asked.end))))
    for target in spec.targets:
        table = targets[target.name].table if concerned and target.name in targets else None
        if table is None or missing_column(table, target.coordinates):
            continue
        counter = RowCounter(table, target.coordinates, stream=spec.stream if target.role == "dead_letters" else None)
        for each in concerned:
            if counter.count([each])[0].any():
                return ResetRefusedError(
                    f"stream {spec.stream}: table {target.name} has records of {each.partition} {each.range}, which a "
                    "backfill has landed. If they are read again, they exist twice, and every audit reports it.",
                    fix=f"frazil reset-offsets {spec.stream} {request.arguments} --dry-run, and run the DELETE "
                    "statements that it shows; then run this again",
                )
    return None


def _backfilled(
    spec: StreamSpec, settings: Settings, catalog: Catalog, coordinator: Target
) -> Iterator[PartitionRange]:
    """Offsets that backfills of the stream have landed in the coordinator table as it is, each range once."""
    filled, metadata = backfill_id(spec.stream), coordinator.table.metadata
    uuid = str(metadata.table_uuid)
    rows = read_ledger(catalog, settings, filled, coordinator.name, None, uuid)
    ranges = {
        PartitionRange(row.partition, row.range)
        for row in effective_rows(row for row in rows if row.table_uuid == uuid)
        if row.kind in ("batch", "unknown")
    }
    # A backfill writes the ledger at its end. One that was killed has left stamps alone.
    for _, stamp in stamps_along_main(metadata, filled):
        if stamp.kind == "batch":
            starts = stamp.start
            ranges |= {PartitionRange(at, OffsetRange(starts.get(at, end), end)) for at, end in stamp.position.items()}
    yield from sorted(each for each in ranges if each.range.start < each.range.end)
