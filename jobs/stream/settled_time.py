"""Settled time of a stream: through when it is complete in all of its tables, also while a batch is half committed.

The coordinator is committed to before the other tables. So the time that its newest stamp says holds for those only
once they have the batch.
"""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.commit.recovery import half_committed
from jobs.commit.stamp_history import as_written, history, stamps_along_main
from jobs.commit.stamps import Stamp
from jobs.commit.target_positions import of_known_topics
from jobs.spec.models import StreamSpec
from jobs.stream.source_topics import readable_table


def settled_through(spec: StreamSpec, catalog: Catalog, coordinator: TableMetadata) -> int | None:
    """Every record with an older timestamp is in the stream's tables; milliseconds since 1970, None if unknown.

    Only the tables that have rows of the newest batch are loaded.

    Args:
        spec: The stream.
        catalog: Catalog of its tables.
        coordinator: Metadata of the coordinator.
    """
    metadata = as_written(coordinator, spec.stream)
    newest = history(metadata, spec.stream).newest
    if newest is None or newest.valid_through_ms is None:
        return None
    stamps: dict[str, Stamp | None] = {spec.coordinator: newest}
    for name, rows in newest.rows.items():
        if not rows or name == spec.coordinator or name in newest.parked:
            continue
        table = readable_table(spec, catalog, name, spec.branch_of(name))
        stamps[name] = history(table.metadata, spec.stream).newest if table is not None else None
    if half_committed(of_known_topics(stamps, spec.coordinator), spec.coordinator) is None:
        return newest.valid_through_ms
    before = (
        stamp.valid_through_ms
        for _, stamp in stamps_along_main(metadata, spec.stream)
        if stamp.kind != "claim" and stamp.sequence < (newest.last_move or 0)
    )
    return next(before, None)
