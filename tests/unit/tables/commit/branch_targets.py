"""Targets on a branch of the test table, and what stands on the branch."""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import SetSnapshotRefUpdate

from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.protocol.target import Target
from tests.unit.tables.commit.conftest import NAME, rows_of

Connect = Callable[..., Target]


def branch_target(new_catalog: Callable[[], SqlCatalog]) -> Connect:
    """A driver's target on a branch; the table is there."""
    return lambda branch="ingest", **more: Target(new_catalog(), NAME, "s", branch=branch, **more)


def rows_on(catalog: SqlCatalog, branch: str) -> int:
    return rows_of(on_branch(catalog.load_table(NAME), branch))


def point(catalog: SqlCatalog, branch: str, snapshot_id: int) -> None:
    """Somebody moves a branch, or makes one."""
    table = catalog.load_table(NAME)
    update = SetSnapshotRefUpdate.model_validate({"ref-name": branch, "type": "branch", "snapshot-id": snapshot_id})
    catalog.commit_table(table, (), (update,))
