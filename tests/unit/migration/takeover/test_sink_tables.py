"""Tables of a sink in a catalog of SQLite: floors, announced files, and their commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table

from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings
from jobs.migration.sink_protocol.announced_files import data_file_of, live_paths, misfit_of
from jobs.migration.sink_protocol.sink_floor import SinkFloor, floor_text, sink_floor
from jobs.migration.takeover.completion_plan import TableCompletion
from jobs.migration.takeover.control_topic import AnnouncedFile
from jobs.migration.takeover.sink import sink_of
from jobs.migration.takeover.table_completion import COMPLETED_KEY, complete_table
from jobs.migration.takeover.takeover_refusal import TakeoverRefusedError
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.lineage import last_sequence
from tests.helpers.lake import NAME, spec_of

SINK = sink_of("orders", "apache", group=None, control_topic="control")
KEY = SINK.floor_key
SPEC = spec_of()


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    connected = connect_catalog(Settings.embedded(tmp_path))
    ensure_tables(SPEC, connected)
    return connected


def written(table: Table, ids: range, day: int = 1) -> list[Mapping[str, Any]]:
    """Files of some rows, as the sink announces them."""
    schema = table.schema().as_arrow()
    at = datetime(2026, 3, day, tzinfo=UTC)
    rows = pa.Table.from_pylist(
        [{"id": number, "created_at": at, "payer": f"p{number}"} for number in ids], schema=schema
    )
    files = _dataframe_to_data_files(table.metadata, rows, table.io)
    names = [field.name for field in table.spec().fields]
    return [
        {
            "content": 0,
            "file_path": file.file_path,
            "file_format": "PARQUET",
            "spec_id": table.spec().spec_id,
            "partition": dict(zip(names, (file.partition[i] for i in range(len(names))), strict=True)),
            "record_count": file.record_count,
            "file_size_in_bytes": file.file_size_in_bytes,
            "lower_bounds": file.lower_bounds,
            "upper_bounds": file.upper_bounds,
            "value_counts": file.value_counts,
            "null_value_counts": file.null_value_counts,
        }
        for file in files
    ]


def announced(files: list[Mapping[str, Any]], table: Table) -> tuple[AnnouncedFile, ...]:
    return tuple(AnnouncedFile(0, 12, str(table.metadata.table_uuid), file) for file in files)


def sink_commits(
    table: Table, files: list[Mapping[str, Any]], floor: int | dict[int, int], branch: str = "main"
) -> None:
    """A commit as the sink makes it."""
    offsets = {0: floor} if isinstance(floor, int) else floor
    with (
        table.transaction() as change,
        change.update_snapshot({KEY: floor_text(offsets)}, branch=branch).fast_append() as append,
    ):
        for file in files:
            append.append_data_file(data_file_of(file, table.metadata))


def others_commit(table: Table) -> None:
    table.append(pa.Table.from_pylist([], schema=table.schema().as_arrow()))


def rows(catalog: Catalog, branch: str = "main") -> list[int]:
    table = catalog.load_table(NAME)
    scan = table.scan().use_ref(branch) if branch != "main" else table.scan()
    return sorted(scan.to_arrow()["id"].to_pylist())


def complete(catalog: Catalog, files: tuple[AnnouncedFile, ...], floor: SinkFloor, left: Any = ()) -> None:
    complete_table(catalog, SPEC, SINK, TableCompletion(NAME, files, floor, left), {0: 40, 1: 3})


def test_announced_files_are_committed_once_under_the_sinks_key(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    sink_commits(table, written(table, range(10)), 10)
    later = announced(written(table, range(10, 30)), table)
    complete(catalog, later, sink_floor(table.metadata, KEY))
    assert rows(catalog) == list(range(30))
    metadata = catalog.load_table(NAME).metadata
    floor = sink_floor(metadata, KEY)
    assert floor.offsets == {0: 40, 1: 3}
    head = metadata.current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.additional_properties[COMPLETED_KEY] == "orders"
    with pytest.raises(TakeoverRefusedError, match="somebody committed with the sink's key"):
        complete(catalog, later, SinkFloor({0: 10}, 1, 1))
    assert rows(catalog) == list(range(30))


def test_a_table_upgraded_from_format_version_1_is_completed(catalog: Catalog) -> None:
    existing = catalog.load_table(NAME)
    schema, partitions = existing.schema(), existing.spec()
    catalog.drop_table(NAME)
    table = catalog.create_table(NAME, schema, partition_spec=partitions, properties={"format-version": "1"})
    sink_commits(table, written(table, range(10)), 10)
    committed, later = written(table, range(10, 20)), written(table, range(20, 30))
    sink_commits(table, committed, 11)
    with table.transaction() as change:
        change.upgrade_table_version(2)
    table = catalog.load_table(NAME)
    floor = sink_floor(table.metadata, KEY)
    assert floor.offsets == {0: 11}
    paths = {file["file_path"] for file in (*committed, *later)}
    assert live_paths(table, paths, floor.sequence) == {file["file_path"] for file in committed}
    complete(catalog, announced(later, table), floor)
    assert rows(catalog) == list(range(30))
    assert sink_floor(catalog.load_table(NAME).metadata, KEY).offsets == {0: 40, 1: 3}


def test_a_rollback_before_the_upgrade_shows(catalog: Catalog) -> None:
    existing = catalog.load_table(NAME)
    schema = existing.schema()
    catalog.drop_table(NAME)
    table = catalog.create_table(NAME, schema, properties={"format-version": "1"})
    sink_commits(table, written(table, range(3)), 5)
    kept = table.metadata.current_snapshot()
    sink_commits(table, written(table, range(3, 6)), 9)
    removed = table.metadata.current_snapshot()
    assert kept is not None
    assert removed is not None
    table.manage_snapshots().rollback_to_snapshot(kept.snapshot_id).commit()
    with catalog.load_table(NAME).transaction() as change:
        change.upgrade_table_version(2)
    floor = sink_floor(catalog.load_table(NAME).metadata, KEY)
    assert (floor.offsets, floor.elsewhere) == ({0: 5}, (removed.snapshot_id,))


def test_nothing_to_complete_commits_nothing_and_files_left_out_raise_the_floor(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    sink_commits(table, written(table, range(10)), 10)
    head, floor = table.metadata.current_snapshot_id, sink_floor(table.metadata, KEY)
    complete(catalog, (), floor)
    assert catalog.load_table(NAME).metadata.current_snapshot_id == head
    complete(catalog, (), floor, announced(written(table, range(10, 20)), table))
    assert rows(catalog) == list(range(10))
    assert sink_floor(catalog.load_table(NAME).metadata, KEY).offsets == {0: 40, 1: 3}


def test_a_table_that_was_recreated_meanwhile_gets_nothing(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    files = announced(written(table, range(10)), table)
    catalog.drop_table(NAME)
    ensure_tables(SPEC, catalog)
    with pytest.raises(TakeoverRefusedError, match="another table of that name"):
        complete(catalog, files, SinkFloor(None))
    assert rows(catalog) == []


def test_files_of_a_dropped_table_are_left_out(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    files = announced(written(table, range(10)), table)
    catalog.drop_table(NAME)
    complete(catalog, (), SinkFloor(None), files)
    assert not catalog.table_exists(NAME)


def test_files_of_another_partition_spec_do_not_fit(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    (first, *_) = written(table, range(1))
    assert misfit_of(first, table.metadata) is None
    assert misfit_of({**first, "content": 2}, table.metadata) == "is no data file"
    assert "which the table does not have" in (misfit_of({**first, "spec_id": 9}, table.metadata) or "")
    assert "has other partition values" in (misfit_of({**first, "partition": {"day": 1}}, table.metadata) or "")
    assert misfit_of({**first, "spec_id": None}, table.metadata) is None, "there is only one"
    with table.update_spec() as change:
        change.remove_field(table.spec().fields[0].name)
    now = catalog.load_table(NAME).metadata
    assert "the table's is" in (misfit_of(first, now) or "")
    assert "which the table does not have" in (misfit_of({**first, "spec_id": None}, now) or ""), "the spec is unknown"


def test_the_floor_is_that_of_the_newest_ancestor(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    assert sink_floor(table.metadata, KEY) == SinkFloor(None)
    others_commit(table)
    assert sink_floor(table.metadata, KEY) == SinkFloor(None), "the sink has never committed"
    sink_commits(table, written(table, range(3)), 5)
    first = table.metadata.current_snapshot()
    others_commit(table)
    assert first is not None
    assert sink_floor(table.metadata, KEY) == SinkFloor({0: 5}, first.snapshot_id, 2)
    assert sink_floor(table.metadata, "kafka.connect.offsets.control.connect-other").offsets is None


@pytest.mark.parametrize(
    "floors",
    [
        # A coordinator that lives on beside its successor.
        [{0: 5, 1: 9}, {0: 3, 1: 2}],
        # One that was started again, of a release that writes only what it has read since.
        [{0: 5}, {1: 9}],
        [{1: 9, 0: 4}, {0: 5}],
    ],
)
def test_what_an_earlier_snapshot_of_the_sink_has_is_committed(catalog: Catalog, floors: list[dict[int, int]]) -> None:
    table = catalog.load_table(NAME)
    for floor in floors:
        sink_commits(table, written(table, range(3)), floor)
    head = table.metadata.current_snapshot()
    assert head is not None
    assert sink_floor(table.metadata, KEY) == SinkFloor({0: 5, 1: 9}, head.snapshot_id, 2)


def test_a_rollback_shows(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    sink_commits(table, written(table, range(3)), 5)
    kept = table.metadata.current_snapshot()
    sink_commits(table, written(table, range(3, 6)), 9)
    lost = table.metadata.current_snapshot()
    assert kept is not None
    assert lost is not None
    table.manage_snapshots().rollback_to_snapshot(kept.snapshot_id).commit()
    floor = sink_floor(catalog.load_table(NAME).metadata, KEY)
    assert (floor.offsets, floor.elsewhere) == ({0: 5}, (lost.snapshot_id,))


def test_an_expired_history_is_no_floor_of_zero(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    sink_commits(table, written(table, range(3)), 5)
    first = table.metadata.current_snapshot()
    others_commit(table)
    assert first is not None
    with table.maintenance.expire_snapshots() as expiry:
        expiry.by_id(first.snapshot_id)
    floor = sink_floor(catalog.load_table(NAME).metadata, KEY)
    assert (floor.offsets, floor.whole, floor.knows(0)) == (None, False, False)


def test_a_partition_whose_floor_has_expired_is_not_known(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    sink_commits(table, written(table, range(3)), 5)
    first = table.metadata.current_snapshot()
    sink_commits(table, written(table, range(3, 6)), {1: 9})
    assert first is not None
    assert [sink_floor(table.metadata, KEY).knows(number) for number in (0, 1, 2)] == [True, True, True]
    with table.maintenance.expire_snapshots() as expiry:
        expiry.by_id(first.snapshot_id)
    floor = sink_floor(catalog.load_table(NAME).metadata, KEY)
    assert [floor.knows(number) for number in (0, 1, 2)] == [False, True, False]


def test_live_files_are_those_of_the_branchs_head(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    old, new, never = (written(table, range(at, at + 3)) for at in (0, 3, 6))
    sink_commits(table, old, 5)
    sequence = last_sequence(table.metadata)
    sink_commits(table, new, 9)
    paths = {file["file_path"] for file in (*old, *new, *never)}
    now = catalog.load_table(NAME)
    assert live_paths(now, paths, 0) == {file["file_path"] for file in (*old, *new)}
    assert live_paths(now, {file["file_path"] for file in new}, sequence) == {file["file_path"] for file in new}
    assert live_paths(now, set(), 0) == set()


def test_a_branch_has_a_floor_of_its_own(catalog: Catalog) -> None:
    table = catalog.load_table(NAME)
    sink_commits(table, written(table, range(3)), 5)
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "side").commit()
    sink_commits(table, written(table, range(3, 6)), 9, "side")
    now = catalog.load_table(NAME)
    assert sink_floor(now.metadata, KEY).offsets == {0: 5}
    assert sink_floor(on_branch(now, "side").metadata, KEY).offsets == {0: 9}
