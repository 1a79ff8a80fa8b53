"""The compare-and-swap overwrite on a real catalog, and what is relied on of PyIceberg for it."""

from __future__ import annotations

import inspect

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.transforms import IdentityTransform

from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append, ReplaceFiles
from jobs.tables.commit.stamp.errors import HeadMovedError
from tests.unit.tables.commit.conftest import (
    NAME,
    SCHEMA,
    data_file,
    files_of,
    rows_of,
)


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return catalog.load_table(NAME)


def append(table: Table, rows: int) -> DataFile:
    """Returns the file as a scan names it."""
    made = data_file(table, rows)
    commit_once(table, Append([made]), summary={}, properties={})
    return next(task.file for task in table.scan().plan_files() if task.file.file_path == made.file_path)


def test_what_is_relied_on_of_pyiceberg() -> None:
    assert {"operation", "transaction", "io", "snapshot_properties"} <= set(
        inspect.signature(_OverwriteFiles.__init__).parameters
    )
    for name in ("append_data_file", "delete_data_file", "delete_by_predicate", "_commit", "_clean_all_uncommitted"):
        assert hasattr(_OverwriteFiles, name), name


def test_files_take_the_place_of_others_in_one_commit(catalog: SqlCatalog, table: Table) -> None:
    old, kept = append(table, 3), append(table, 5)
    new = data_file(table, 4)
    snapshot_id = commit_once(table, ReplaceFiles([old], [new]), summary={"frazil.stamp": "s"}, properties={"p": "1"})
    fresh = catalog.load_table(NAME)
    head = fresh.current_snapshot()
    assert head is not None and head.summary is not None
    assert (head.snapshot_id, head.summary["frazil.stamp"], fresh.properties["p"]) == (snapshot_id, "s", "1")
    assert (head.summary["total-records"], rows_of(fresh)) == ("9", 9)
    assert {task.file.file_path for task in fresh.scan().plan_files()} == {kept.file_path, new.file_path}


def test_a_partitioned_table(catalog: SqlCatalog) -> None:
    table = catalog.create_table("orders.by_day", SCHEMA, properties={"format-version": "2"})
    with table.update_spec() as update:
        update.add_field("day", IdentityTransform(), "day")
    old, kept = append(table, 3), append(table, 5)
    new = data_file(table, 1)
    commit_once(table, ReplaceFiles([old], [new]), summary={}, properties={})
    fresh = catalog.load_table("orders.by_day")
    assert {task.file.file_path for task in fresh.scan().plan_files()} == {kept.file_path, new.file_path}


def test_a_head_that_moved_is_refused_and_leaves_nothing(catalog: SqlCatalog, table: Table) -> None:
    old = append(table, 3)
    other = catalog.load_table(NAME)
    append(other, 1)
    new = data_file(table, 4)
    before = files_of(other, "*.avro")
    with pytest.raises(HeadMovedError):
        commit_once(table, ReplaceFiles([old], [new]), summary={}, properties={})
    assert files_of(other, "*.avro") == before
    assert rows_of(catalog.load_table(NAME)) == 4


def test_a_file_that_is_no_longer_there_changes_nothing(catalog: SqlCatalog, table: Table) -> None:
    old = append(table, 3)
    commit_once(table, ReplaceFiles([old], [data_file(table, 2)]), summary={}, properties={})
    with pytest.raises(Exception, match="Missing required files to delete"):
        commit_once(table, ReplaceFiles([old], [data_file(table, 9)]), summary={}, properties={})
    assert rows_of(catalog.load_table(NAME)) == 2
