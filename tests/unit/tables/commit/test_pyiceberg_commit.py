"""A commit of appended files on a real catalog, and what is relied on of PyIceberg's private commit path."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table
from pyiceberg.table.update import AssertRefSnapshotId
from pyiceberg.table.update.snapshot import _MergeAppendFiles
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import StringType

from jobs.tables.commit.protocol import prepared_commit, snapshot_producers
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append, ReplaceFiles
from jobs.tables.commit.stamp.errors import CommitUnknownError, HeadMovedError
from tests.unit.tables.commit.conftest import (
    NAME,
    SCHEMA,
    data_file,
    files_of,
    rows_of,
)

SUMMARY, PROPERTIES = {"frazil.stamp": "stamp"}, {"frazil.stamp.s": "stamp"}


@pytest.fixture
def table(catalog: SqlCatalog) -> Table:
    return catalog.load_table(NAME)


def append(table: Table, *rows: int) -> int:
    return commit_once(table, Append([data_file(table, n) for n in rows]), summary=SUMMARY, properties=PROPERTIES)


def test_what_is_relied_on_of_pyiceberg() -> None:
    assert {"operation", "transaction", "io", "snapshot_properties"} <= set(
        inspect.signature(_MergeAppendFiles.__init__).parameters
    )
    for name in ("append_data_file", "_commit", "snapshot_id", "_clean_all_uncommitted"):
        assert hasattr(_MergeAppendFiles, name), name
    assert list(inspect.signature(Catalog.commit_table).parameters) == ["self", "table", "requirements", "updates"]
    assert list(inspect.signature(Catalog._delete_old_metadata).parameters) == ["io", "base", "metadata"]


def test_rows_summary_and_property_land_in_one_commit(catalog: SqlCatalog, table: Table) -> None:
    snapshot_id = append(table, 3, 4)
    fresh = catalog.load_table(NAME)
    head = fresh.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.snapshot_id == snapshot_id
    assert head.summary["frazil.stamp"] == "stamp" and head.summary["total-records"] == "7"
    assert fresh.properties["frazil.stamp.s"] == "stamp"
    assert rows_of(fresh) == 7
    assert len(fresh.metadata.metadata_log) == 1, "one commit"
    assert table.metadata == fresh.metadata and table.metadata_location == fresh.metadata_location


def test_an_empty_append_makes_a_snapshot_and_keeps_the_rows(catalog: SqlCatalog, table: Table) -> None:
    append(table, 3)
    append(table)
    fresh = catalog.load_table(NAME)
    assert len(fresh.metadata.snapshots) == 2
    assert rows_of(fresh) == 3


def test_a_commit_on_many_snapshots_loses_none(catalog: SqlCatalog, table: Table) -> None:
    first = append(table, 1)
    table.manage_snapshots().create_tag(first, "month-end").commit()
    table.refresh()
    for number in range(1, 6):
        append(table, number)
    before = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    last = append(table, 9)
    commit_once(table, ReplaceFiles([], [data_file(table, 10)]), summary=SUMMARY, properties=PROPERTIES)
    fresh = catalog.load_table(NAME).metadata
    assert [snapshot.snapshot_id for snapshot in fresh.snapshots][:-1] == [*before, last]
    assert fresh.refs["month-end"].snapshot_id == first
    head = fresh.current_snapshot()
    assert head is not None and head.parent_snapshot_id == last
    assert len(fresh.snapshot_log) == len(fresh.snapshots)


def test_a_producer_changes_nothing_of_what_it_reads(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise CommitFailedException("no")

    append(table, 1)
    files = [data_file(table, 2)]
    as_read = table.metadata.model_dump_json()
    monkeypatch.setattr(table.catalog, "commit_table", refused)
    for operation in (Append(files), ReplaceFiles([], files)):
        read = table.metadata
        with pytest.raises(HeadMovedError):
            commit_once(table, operation, summary=SUMMARY, properties=PROPERTIES)
        assert read.model_dump_json() == as_read


def test_what_is_staged_counts_in_an_unchanged_transaction(table: Table) -> None:
    transaction = snapshot_producers.UnchangedTransaction(table)
    assert transaction.table_metadata is table.metadata
    transaction.set_properties({"a": "b"})
    assert transaction.table_metadata.properties["a"] == "b" and "a" not in table.properties


def by_append(other: Table) -> None:
    other.append(data_frame(other))


def by_schema(other: Table) -> None:
    with other.update_schema() as update:
        update.add_column("new", StringType())


def by_spec(other: Table) -> None:
    with other.update_spec() as update:
        update.add_field("day", IdentityTransform())


def expire_former_heads(table: Table) -> None:
    """As Iceberg's expiry does: all but the head goes, with the manifest lists and manifests that only they had."""
    head = table.current_snapshot()
    assert head is not None
    kept = {head.manifest_list, *(each.manifest_path for each in head.manifests(table.io))}
    former = [each for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
    files = {each.manifest_list for each in former} | {
        manifest.manifest_path for each in former for manifest in each.manifests(table.io)
    }
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in former]).commit()
    for file in files - kept:
        table.io.delete(file)


def test_a_head_that_has_expired_since_it_was_read_has_moved(catalog: SqlCatalog, table: Table) -> None:
    append(table, 3)
    other = catalog.load_table(NAME)
    commit_once(other, ReplaceFiles([], [data_file(other, 4)]), summary={}, properties={})
    expire_former_heads(other)
    before = files_of(other, "*.avro")
    with pytest.raises(HeadMovedError, match="has expired") as moved:
        append(table, 5)
    assert moved.value.final and files_of(other, "*.avro") == before
    append(catalog.load_table(NAME), 5)
    assert rows_of(catalog.load_table(NAME)) == 12


def test_a_head_without_its_manifest_list_is_no_moved_head(catalog: SqlCatalog, table: Table) -> None:
    append(table, 3)
    head = table.current_snapshot()
    assert head is not None
    table.io.delete(head.manifest_list)
    with pytest.raises(FileNotFoundError):
        append(table, 5)


def data_frame(table: Table) -> pa.Table:
    return pa.table({"id": [1], "day": ["a"]}, schema=table.schema().as_arrow())


@pytest.mark.parametrize("change", [by_append, by_schema, by_spec], ids=lambda change: change.__name__)
def test_whoever_changed_the_table_first_refuses_us_and_nothing_is_left(
    catalog: SqlCatalog, table: Table, change: Callable[[Table], None]
) -> None:
    append(table, 3)
    file = data_file(table)
    change(catalog.load_table(NAME))
    before = files_of(table, "*.avro")
    with pytest.raises(HeadMovedError):
        commit_once(table, Append([file]), summary=SUMMARY, properties=PROPERTIES)
    assert files_of(table, "*.avro") == before, "manifests and lists of the refused commit are removed"
    fresh = catalog.load_table(NAME)
    assert table.metadata == fresh.metadata, "the next attempt starts from what is there"
    assert len(fresh.metadata.snapshots) == (2 if change is by_append else 1)


def test_a_property_set_by_another_does_not_refuse_and_stays(catalog: SqlCatalog, table: Table) -> None:
    with catalog.load_table(NAME).transaction() as other:
        other.set_properties({"owner": "somebody"})
    append(table, 3)
    properties = catalog.load_table(NAME).properties
    assert (properties["owner"], properties["frazil.stamp.s"]) == ("somebody", "stamp")


def test_a_dropped_table_refuses(catalog: SqlCatalog, table: Table) -> None:
    catalog.drop_table(NAME)
    with pytest.raises(HeadMovedError):
        append(table, 3)
    assert not catalog.table_exists(NAME), "the commit did not make it anew"
    assert not files_of(table, "snap-*.avro")


def test_a_recreated_table_refuses(catalog: SqlCatalog, table: Table) -> None:
    catalog.drop_table(NAME)
    catalog.create_table(NAME, SCHEMA)
    with pytest.raises(HeadMovedError):
        append(table, 3)
    assert catalog.load_table(NAME).metadata.snapshots == []


def answering(
    monkeypatch: pytest.MonkeyPatch, table: Table, problem: Exception, *, lands: bool, loses_load: int = 0
) -> None:
    """Let the catalog answer one commit with `problem`, whether or not it lands."""
    commit, load, losses = table.catalog.commit_table, table.catalog.load_table, [0]

    def commit_table(*args: Any) -> Any:
        if lands:
            commit(*args)
        losses[0] = loses_load
        raise problem

    def load_table(name: Any) -> Table:
        if losses[0]:
            losses[0] -= 1
            raise ConnectionError("no answer")
        return load(name)

    monkeypatch.setattr(table.catalog, "commit_table", commit_table)
    if loses_load:
        monkeypatch.setattr(table.catalog, "load_table", load_table)


@pytest.mark.parametrize("problem", [CommitStateUnknownException("502"), ConnectionError("reset")], ids=str)
def test_an_unknown_outcome_that_landed_counts_as_landed(
    monkeypatch: pytest.MonkeyPatch, catalog: SqlCatalog, table: Table, problem: Exception
) -> None:
    answering(monkeypatch, table, problem, lands=True)
    snapshot_id = append(table, 3)
    monkeypatch.undo()
    fresh = catalog.load_table(NAME)
    assert [each.snapshot_id for each in fresh.metadata.snapshots] == [snapshot_id]
    assert rows_of(fresh) == 3, "its manifests were not removed"
    assert table.metadata == fresh.metadata


def test_an_unknown_outcome_that_did_not_land_keeps_its_manifests(
    monkeypatch: pytest.MonkeyPatch, catalog: SqlCatalog, table: Table
) -> None:
    answering(monkeypatch, table, TimeoutError("slow"), lands=False)
    with pytest.raises(HeadMovedError, match="slow"):
        append(table, 3)
    assert files_of(table, "*.avro"), "the server may still carry the commit out"
    monkeypatch.undo()
    append(table, 3)
    assert rows_of(catalog.load_table(NAME)) == 3


def test_the_catalog_is_asked_again_until_it_answers(
    monkeypatch: pytest.MonkeyPatch, catalog: SqlCatalog, table: Table
) -> None:
    file = data_file(table)
    answering(monkeypatch, table, ConnectionError("reset"), lands=True, loses_load=3)
    commit_once(table, Append([file]), summary=SUMMARY, properties=PROPERTIES)
    monkeypatch.undo()
    assert rows_of(catalog.load_table(NAME)) == 3


def test_a_catalog_that_stays_away_leaves_everything_as_it_is(monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    monkeypatch.setattr(prepared_commit, "UNKNOWN_DEADLINE_SECONDS", 0.0)
    answering(monkeypatch, table, ConnectionError("reset"), lands=True, loses_load=10**6)
    with pytest.raises(CommitUnknownError, match="did not say whether a commit landed"):
        append(table, 3)
    monkeypatch.undo()
    assert rows_of(table.refresh()) == 3


def test_old_metadata_files_are_removed(catalog: SqlCatalog, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties(
            {"write.metadata.delete-after-commit.enabled": "true", "write.metadata.previous-versions-max": "2"}
        )
    for _ in range(6):
        append(table, 1)
    assert len(files_of(table, "*.metadata.json")) == 3
    assert rows_of(catalog.load_table(NAME)) == 6


def test_manifests_are_merged_at_the_tables_own_count(catalog: SqlCatalog, table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "4"})
    counts: list[int] = []
    for _ in range(5):
        append(table, 2)
        head = table.current_snapshot()
        assert head is not None
        counts.append(len(head.manifests(table.io)))
    assert counts == [1, 2, 3, 1, 2]
    assert rows_of(catalog.load_table(NAME)) == 10


def test_the_requirement_names_the_head_that_was_read(monkeypatch: pytest.MonkeyPatch, table: Table) -> None:
    head = append(table, 1)
    asked: list[Any] = []
    commit = table.catalog.commit_table
    monkeypatch.setattr(table.catalog, "commit_table", lambda t, r, u: asked.extend(r) or commit(t, r, u))
    append(table, 1)
    assert AssertRefSnapshotId.model_validate({"ref": "main", "snapshot-id": head}) in asked
    assert {each.type for each in asked} == {
        "assert-table-uuid",
        "assert-ref-snapshot-id",
        "assert-current-schema-id",
        "assert-default-spec-id",
    }
