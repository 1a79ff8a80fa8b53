"""Former targets: tables that a stream's route no longer names and that still have its rows."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchPropertyException
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import TargetSpec
from jobs.tables.commit.history.branch import existing_table
from jobs.tables.commit.history.stamp_history import (
    as_written,
    history,
    stamped_snapshots,
    written_branch,
)
from jobs.tables.commit.protocol.named_tables import belongs_to
from jobs.tables.commit.stamp.target_directory import TargetDirectory


def former_targets(spec: StreamSpec, catalog: Catalog, known: Iterable[str] = ()) -> list[TargetSpec]:
    """Tables of rows that the stream wrote and its file no longer names, by name.

    Args:
        catalog: Catalog with the coordinator, which lists former targets, and with these.
        known: Names of further tables that the stream may have written.

    Returns:
        Those that exist and have rows of the stream; dropped or given-away tables are left out.
    """
    coordinator = existing_table(catalog, spec.coordinator)
    told = _told(as_written(coordinator.metadata, spec.stream), spec.stream) if coordinator is not None else set[str]()
    names = {*told, *known} - set(spec.target_names)
    coordinates = next(each.coordinates for each in spec.targets if each.role == "rows")
    found = ((name, _branch_with_rows(catalog, name, spec.stream, coordinates)) for name in sorted(names))
    return [
        TargetSpec(name, "rows", coordinates=coordinates, branch=branch) for name, branch in found if branch is not None
    ]


def _told(metadata: TableMetadata, stream: str) -> set[str]:
    """Former targets by the coordinator: its directory, and its existing stamps."""
    names = {name for name, _ in TargetDirectory.of(metadata.properties, stream).entries}
    newest = history(metadata, stream).newest
    stamps = [stamp for _, stamp in stamped_snapshots(metadata, stream)]
    for stamp in [*stamps, *([newest] if newest else [])]:
        names |= {*stamp.targets, *stamp.rows}
    return names


def _branch_with_rows(catalog: Catalog, name: str, stream: str, coordinates: tuple[str, str, str]) -> str | None:
    """The branch of a table that the stream wrote last; None if it has no rows of the stream."""
    try:
        table = existing_table(catalog, name)
    except NoSuchPropertyException:
        # A table with another role has the name now.
        return None
    if table is None or not belongs_to(table.metadata, stream):
        return None
    # Former dead-letter tables have other columns, and are audited with the dead letters.
    if not set(coordinates) <= set(table.schema().column_names):
        return None
    return written_branch(table.metadata, stream) or MAIN_BRANCH
