"""Former targets: tables that a stream's route named once and no longer does, and that still hold its rows."""

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
    """The tables of rows that the stream wrote beside its own and its file does not name any more, by name.

    Args:
        catalog: Is asked for the coordinator, which tells former targets, and for each of these.
        known: Names of further tables that the stream may have written.

    Returns:
        Those that are there and hold rows of the stream; one that was dropped, or given away, is nobody's question.
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
    """What the coordinator says of targets: its directory, and the stamps that are kept."""
    names = {name for name, _ in TargetDirectory.of(metadata.properties, stream).entries}
    newest = history(metadata, stream).newest
    stamps = [stamp for _, stamp in stamped_snapshots(metadata, stream)]
    for stamp in [*stamps, *([newest] if newest else [])]:
        names |= {*stamp.targets, *stamp.rows}
    return names


def _branch_with_rows(catalog: Catalog, name: str, stream: str, coordinates: tuple[str, str, str]) -> str | None:
    """The branch of a table that the stream wrote last; None of one without its rows."""
    try:
        table = existing_table(catalog, name)
    except NoSuchPropertyException:
        # Another kind of table has the name now.
        return None
    if table is None or not belongs_to(table.metadata, stream):
        return None
    # Former dead letters have other columns: what became of them is told with the letters.
    if not set(coordinates) <= set(table.schema().column_names):
        return None
    return written_branch(table.metadata, stream) or MAIN_BRANCH
