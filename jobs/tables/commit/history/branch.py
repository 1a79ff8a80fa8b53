"""Branch of a table that a stream writes: the table as seen from that branch, and commits to it.

Stamps, rows and heads are read along `main`. If a stream writes another branch, the table is given as seen from that
branch: in its metadata, `main` points to the branch's head. So readers and commits need no branch argument. A branch
that does not exist yet starts at the head of the table's own `main`, with the first commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from jobs.base.errors import FrazilError
from jobs.tables.commit.history.lineage import (
    LINE_PROPERTY,
    ancestors,
    last_sequence,
    line_at_head,
)


class TableOnBranch(Table):
    """A table seen from a branch. Metadata set by a refresh or a commit is seen from that branch as well."""

    def __init__(self, table: Table, branch: str) -> None:
        self.branch: str = branch
        super().__init__(table.name(), table.metadata, table.metadata_location, table.io, table.catalog, table.config)

    @property
    def metadata(self) -> TableMetadata:
        """Metadata in which `main` points to the branch's head."""
        return self._seen

    @metadata.setter
    def metadata(self, value: TableMetadata) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
        self.whole: TableMetadata = value
        self._seen: TableMetadata = seen_on(value, self.branch)


def on_branch(table: Table, branch: str) -> Table:
    """The table seen from the branch; the table itself for `main`.

    Raises:
        FrazilError: A tag has that name.
    """
    return table if branch == MAIN_BRANCH else TableOnBranch(table, branch)


def whole_table(table: Table) -> Table:
    """The table with its own `main`, without the view from a branch; the metadata are the same version."""
    if not isinstance(table, TableOnBranch):
        return table
    return Table(table.name(), table.whole, table.metadata_location, table.io, table.catalog, table.config)


class WritesBranches(Protocol):
    """Protocol of a stream's file that names the branches which the stream writes."""

    def branch_of(self, table: str) -> str:
        """Name of the branch that the stream writes in a table."""
        ...


def stream_table(catalog: Catalog, stream: WritesBranches, name: str) -> Table:
    """A table of a stream, seen from the branch that the stream writes."""
    return on_branch(catalog.load_table(name), stream.branch_of(name))


def branch_of(table: Table) -> str:
    """The branch from which a table is seen."""
    return table.branch if isinstance(table, TableOnBranch) else MAIN_BRANCH


def described(table: str, branch: str) -> str:
    """Name of the table with its branch, for a sentence."""
    return f"table {table}" if branch == MAIN_BRANCH else f"branch {branch} of table {table}"


def seen_on(metadata: TableMetadata, branch: str) -> TableMetadata:
    """Metadata in which `main`, and the line of frazil's commits, are those of a branch.

    Raises:
        FrazilError: A tag has that name.
    """
    if branch == MAIN_BRANCH:
        return metadata
    head = metadata.refs.get(branch)
    if head is not None and head.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise FrazilError(
            f"the branch {branch} that a stream is to write is a tag of its table.",
            fix="name another branch of the table in the stream's file, or drop the tag",
        )
    properties = {key: value for key, value in metadata.properties.items() if key != LINE_PROPERTY}
    if line := metadata.properties.get(line_property(branch)):
        properties[LINE_PROPERTY] = line
    update: dict[str, object] = {"properties": properties}
    if head is not None:
        refs = {**metadata.refs, MAIN_BRANCH: head}
        update |= {"refs": refs, "current_snapshot_id": head.snapshot_id}
    return metadata.model_copy(update=update)


def branches(metadata: TableMetadata) -> list[str]:
    """The names of a table's branches, main among them if it has a head."""
    return [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == SnapshotRefType.BRANCH]


def line_property(branch: str) -> str:
    """Name of the table property with the line of frazil's commits on a branch, see `lineage`."""
    return LINE_PROPERTY if branch == MAIN_BRANCH else f"{LINE_PROPERTY}.{branch}"


def begin_property(branch: str) -> str:
    """Name of the table property with the last sequence number before the branch's first snapshot by frazil."""
    return f"frazil.branch.{branch}"


def to_branch(
    table: Table, updates: Iterable[TableUpdate], requirements: Iterable[TableRequirement]
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Updates and requirements for the catalog, of a commit on a table seen from a branch.

    Args:
        table: The table as it was read.
        updates: Updates of `main`, which stands for the branch.
    """
    if not isinstance(table, TableOnBranch):
        return tuple(updates), tuple(requirements)
    branch = table.branch
    told = tuple(_update_on(table.metadata, branch, each) for each in updates)
    if not table.metadata.snapshots:
        # Iceberg branches need a snapshot to begin at. So the first one, a claim without rows, is also main's head.
        _refuse_rows(told, branch)
        both = (each for each in told if isinstance(each, SetSnapshotRefUpdate | SetPropertiesUpdate))
        begin = SetPropertiesUpdate(updates={begin_property(branch): "0"})
        return (*updates, *both, begin), tuple(requirements)
    if noted := _begin(table) | _line_of_main(table):
        told = (*told, SetPropertiesUpdate(updates=noted))
    return told, tuple(_requirement_on(table.metadata, branch, each) for each in requirements)


def _begin(table: TableOnBranch) -> dict[str, str]:
    """Property with the sequence number at which the branch begins; empty if it is set already.

    If somebody else created the branch, it begins at the newest snapshot that it shares with main.
    """
    name, metadata = begin_property(table.branch), table.whole
    head = metadata.refs.get(table.branch)
    if head is None:
        return {name: str(last_sequence(metadata))}
    if name in metadata.properties:
        return {}
    on_main = {each.snapshot_id for each in ancestors(metadata)}
    common = next((each for each in ancestors(metadata, head.snapshot_id) if each.snapshot_id in on_main), None)
    return {name: str(common.sequence_number or 0)} if common else {}


def _line_of_main(table: TableOnBranch) -> dict[str, str]:
    """The line on main, recorded again after other writers have committed there.

    A publication may be frazil's only commit on main for days. Meanwhile each batch on the branch writes a version of
    the metadata. So the remaining snapshots of main and versions of the metadata could not prove that main still has
    it.
    """
    line = line_at_head(table.whole)
    return {LINE_PROPERTY: line.text()} if line else {}


def _refuse_rows(updates: Iterable[TableUpdate], branch: str) -> None:
    for update in updates:
        summary = update.snapshot.summary if isinstance(update, AddSnapshotUpdate) else None
        if summary is not None and summary.additional_properties.get("added-data-files", "0") != "0":
            raise ValueError(f"the first snapshot of a table has rows, so branch {branch} cannot begin with it")


def ref_on(metadata: TableMetadata, branch: str, update: SetSnapshotRefUpdate) -> SetSnapshotRefUpdate:
    """Update that sets a branch's head, made from the update that sets main's head.

    The branch keeps its own retention settings.
    """
    kept = metadata.refs.get(branch)
    limits = (
        {
            "max_ref_age_ms": kept.max_ref_age_ms,
            "max_snapshot_age_ms": kept.max_snapshot_age_ms,
            "min_snapshots_to_keep": kept.min_snapshots_to_keep,
        }
        if kept
        else {}
    )
    return update.model_copy(update={"ref_name": branch, **limits})


def _update_on(metadata: TableMetadata, branch: str, update: TableUpdate) -> TableUpdate:
    if isinstance(update, SetSnapshotRefUpdate) and update.ref_name == MAIN_BRANCH:
        return ref_on(metadata, branch, update)
    if isinstance(update, SetPropertiesUpdate) and LINE_PROPERTY in update.updates:
        own = {line_property(branch) if key == LINE_PROPERTY else key: value for key, value in update.updates.items()}
        return update.model_copy(update={"updates": own})
    return update


def _requirement_on(metadata: TableMetadata, branch: str, requirement: TableRequirement) -> TableRequirement:
    if not isinstance(requirement, AssertRefSnapshotId) or requirement.ref != MAIN_BRANCH:
        return requirement
    head = metadata.refs.get(branch)
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": head.snapshot_id if head else None})


def existing_table(catalog: Catalog, name: str, branch: str = MAIN_BRANCH) -> Table | None:
    """The table seen from a branch; None if it does not exist. Other errors of the catalog pass through."""
    try:
        return on_branch(catalog.load_table(name), branch)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
