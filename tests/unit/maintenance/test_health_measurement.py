"""What metadata say of a table's health, on real metadata."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import (
    DataFileContent,
    ManifestEntryStatus,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.maintenance.measure.health_facts import PartitionValue
from jobs.maintenance.measure.health_measurement import Growth, growth, measure_health
from jobs.maintenance.measure.maintenance_history import MaintenanceHistory
from jobs.maintenance.measure.partition_measurement import (
    PartitionKeys,
    measure_partitions,
    partition_name,
)
from jobs.maintenance.plan.plan_expiry import table_created_at
from tests.unit.maintenance.metadata_tables import (
    MB,
    NOW,
    SCHEMA,
    append,
    catalog_in,
    file_of,
    manifest_of,
    new_table,
    policy,
)

BY_DAY = PartitionSpec(PartitionField(2, 1000, DayTransform(), "created_at_day"))
BY_COUNTRY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "country"))
JANUARY_31 = (date(2026, 1, 31) - date(1970, 1, 1)).days


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with catalog_in(tmp_path) as made:
        yield made


def test_a_table_without_a_snapshot(catalog: SqlCatalog) -> None:
    facts = measure_health(new_table(catalog), policy(), NOW)
    assert (facts.snapshot_id, facts.sequence, facts.snapshots, facts.data_files) == (None, 0, 0, 0)
    assert facts.partitions is None and facts.snapshot_times == () and facts.bytes_per_day == 0
    assert facts.metadata_bytes > 500
    assert (facts.name, facts.format_version, facts.measured_at) == ("orders.payments", 2, NOW)
    assert measure_health(new_table(catalog, name="other"), policy(), NOW, deep=True).partitions == ()


def test_small_files_by_partition(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_DAY)
    append(table, [file_of(MB, JANUARY_31), file_of(3 * MB, JANUARY_31, records=7)])
    append(table, [file_of(2 * MB, JANUARY_31 + 1), file_of(4 * MB, None)])
    now = datetime.now(UTC)
    facts = measure_health(table, policy(), now)
    assert facts.partitions is not None
    assert [(each.name, each.sizes, each.records) for each in facts.partitions] == [
        ("created_at_day=2026-01-31", (MB, 3 * MB), 17),
        ("created_at_day=2026-02-01", (2 * MB,), 10),
        ("created_at_day=null", (4 * MB,), 10),
    ]
    assert facts.partitions[0].values == (
        PartitionValue("created_at_day", "created_at", "timestamptz", "day", JANUARY_31, "2026-01-31"),
    )
    first, second = facts.snapshot_times
    assert [each.newest_at for each in facts.partitions] == [first, second, second]
    assert (facts.data_files, facts.bytes, facts.records, facts.delete_files) == (4, 10 * MB, 37, 0)
    assert (facts.snapshots, facts.manifests, facts.sequence, facts.mixed_specs) == (2, 2, 2, False)
    assert facts.manifest_bytes > 1_000 and facts.previous_metadata == 2
    assert facts.small_files(2 * MB) == 1


def test_what_the_totals_say_is_well_is_not_looked_at(catalog: SqlCatalog) -> None:
    table = new_table(catalog)
    append(table, [file_of(96 * MB) for _ in range(3)])
    facts = measure_health(table, policy(), NOW)
    assert facts.partitions is None
    assert (facts.data_files, facts.bytes, facts.records) == (3, 288 * MB, 30)
    looked = measure_health(table, policy(), NOW, deep=True)
    assert looked.partitions is not None
    assert looked.partitions[0].sizes == (96 * MB,) * 3 and looked.partitions[0].name == ""
    assert measure_health(table, policy(compact={"target": "1GiB"}), NOW).partitions is not None
    assert measure_health(table, policy(compact={"target": "1GiB"}), NOW, deep=False).partitions is None
    sorting = policy(compact={"strategy": "sort", "sort_by": ["id"]})
    assert measure_health(table, sorting, NOW).partitions is not None
    append(table, [file_of(96 * MB)])
    assert measure_health(table, policy(manifests={"max": 1}), NOW).partitions is not None
    assert measure_health(table, policy(expire={"max_snapshots": 1, "min_snapshots": 1}), NOW).partitions is not None


def test_large_files_do_not_hide_what_a_stream_appends(catalog: SqlCatalog) -> None:
    table = new_table(catalog)
    append(table, [file_of(2000 * MB) for _ in range(20)])
    append(table, [file_of(MB // 10) for _ in range(11)])
    assert measure_health(table, policy(), NOW).partitions is None
    append(table, [file_of(MB // 10)])
    assert measure_health(table, policy(), NOW).small_files(MB) == 12


def test_partitions_of_all_specs(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_DAY)
    append(table, [file_of(MB, JANUARY_31)])
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(8), "id_bucket")
        update.add_field("due", IdentityTransform(), "due")
    append(table, [file_of(MB, JANUARY_31, 7, 20_000, spec_id=1), file_of(MB, JANUARY_31, 3, None, spec_id=1)])
    with table.update_schema() as schema:
        schema.rename_column("due", "due_on")
    facts = measure_health(table.refresh(), policy(), NOW)
    assert facts.mixed_specs and facts.spec_id == 1 and facts.partitions is not None
    assert [(each.spec_id, each.name) for each in facts.partitions] == [
        (0, "created_at_day=2026-01-31"),
        (1, "created_at_day=2026-01-31/id_bucket=3/due=null"),
        (1, "created_at_day=2026-01-31/id_bucket=7/due=2024-10-04"),
    ]
    assert facts.partitions[2].values[1:] == (
        PartitionValue("id_bucket", "id", "long", "bucket[8]", 7, "7"),
        PartitionValue("due", "due_on", "date", "identity", 20_000, "2024-10-04"),
    )


def test_a_column_that_was_dropped_marks_the_partitions_of_the_earlier_spec(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_COUNTRY)
    append(table, [file_of(MB, "CH")])
    with table.update_spec() as update:
        update.remove_field("country")
    with table.update_schema() as schema:
        schema.delete_column("country")
    facts = measure_health(table.refresh(), policy(), NOW)
    assert facts.partitions is not None
    assert [(each.name, each.dropped) for each in facts.partitions] == [("country=CH", "country")]


def test_a_column_called_like_a_metadata_column_keeps_spark_from_rewriting(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_COUNTRY)
    assert measure_health(table, policy(), NOW).misnamed == ()
    with table.update_schema() as schema:
        schema.add_column("_pos", LongType())
    (column,) = measure_health(table.refresh(), policy(), NOW).misnamed
    assert (column.name, column.loads) == ("_pos", True)


def test_names_tell_partitions_apart(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_COUNTRY)
    append(table, [file_of(MB, value) for value in (None, "null", "a/b", "a%2Fb", "", "Zürich=x")])
    facts = measure_health(table, policy(), NOW)
    assert facts.partitions is not None
    assert {each.name for each in facts.partitions} == {
        "country=null",
        'country="null"',
        "country=a%2Fb",
        "country=a%252Fb",
        "country=",
        "country=Zürich=x",
    }


def test_a_day_that_python_has_no_words_for(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_DAY)
    keys = PartitionKeys(table.metadata)
    assert partition_name(keys.values(0, (9_000_000,))) == "created_at_day=9000000"


def test_deletes(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_COUNTRY)
    manifests = [
        manifest_of(table, [file_of(MB, "CH", records=100), file_of(MB, "DE", records=50)]),
        manifest_of(
            table,
            [
                file_of(10, "CH", content=DataFileContent.POSITION_DELETES, records=5),
                file_of(20, "CH", content=DataFileContent.POSITION_DELETES, records=7),
                file_of(30, "DE", content=DataFileContent.EQUALITY_DELETES, records=5),
            ],
        ),
        manifest_of(table, [file_of(MB, "CH", records=100)], status=ManifestEntryStatus.DELETED),
    ]
    ch, de = measure_partitions(table.metadata, table.io, manifests)
    assert (ch.files, ch.records, ch.delete_files, ch.delete_bytes) == (1, 100, 2, 30)
    assert (ch.position_deletes, ch.equality_deletes, ch.delete_ratio) == (12, 0, 0.12)
    assert (de.files, de.delete_files, de.position_deletes, de.equality_deletes, de.delete_ratio) == (1, 1, 0, 5, 0.1)
    assert ch.newest_at is None, "its snapshot is not kept"


def test_totals_that_nobody_wrote_are_counted(catalog: SqlCatalog) -> None:
    table = new_table(catalog)
    append(table, [file_of(200 * MB)])
    (snapshot,) = table.metadata.snapshots
    bare = snapshot.model_copy(update={"summary": Summary(Operation.APPEND)})
    table.metadata = table.metadata.model_copy(update={"snapshots": [bare]})
    facts = measure_health(table, policy(), NOW)
    assert facts.partitions is not None and facts.bytes == 200 * MB


def test_a_table_that_moved_on_is_loaded_again(catalog: SqlCatalog) -> None:
    table = new_table(catalog)
    append(table, [file_of(MB)])
    stale = catalog.load_table("orders.payments")
    append(table, [file_of(MB)])
    head = stale.current_snapshot()
    assert head is not None
    Path(head.manifest_list.removeprefix("file://")).unlink()
    assert measure_health(stale, policy(), NOW).data_files == 2


def test_a_file_that_is_not_there_is_named(catalog: SqlCatalog) -> None:
    table = new_table(catalog)
    append(table, [file_of(MB)])
    head = table.current_snapshot()
    assert head is not None
    (manifest,) = head.manifests(table.io)
    Path(manifest.manifest_path.removeprefix("file://")).unlink()
    with pytest.raises(FrazilError, match=r"orders\.payments: its metadata name a file that is not there") as told:
        measure_health(table, policy(), NOW)
    assert manifest.manifest_path.removeprefix("file://") in str(told.value)
    assert "rollback_to_snapshot('orders.payments'" in str(told.value)


def test_streams_and_refs(catalog: SqlCatalog) -> None:
    table = new_table(catalog, properties={"frazil.stamp.payments": "{}", "frazil.stamp.refunds": "{}"})
    append(table, [file_of(MB)])
    head = table.current_snapshot()
    assert head is not None
    with table.manage_snapshots() as update:
        update.create_tag(head.snapshot_id, "audit")
    facts = measure_health(table, policy(), NOW)
    assert facts.streams == ("payments", "refunds") and facts.refs == ("audit",)
    assert "frazil.stamp" not in repr(facts)


def test_two_thousand_files_take_no_longer_than_they_should(catalog: SqlCatalog) -> None:
    table = new_table(catalog, BY_DAY)
    for commit in range(20):
        append(table, [file_of(MB, day) for day in range(commit, commit + 100)])
    # Processor time, as the suite's other processes are none of its business: 0.3 s, and several times that on a slow
    # machine.
    seconds = []
    for _ in range(3):
        loaded = catalog.load_table("orders.payments")
        started = time.process_time()
        facts = measure_health(loaded, policy(), NOW)
        seconds.append(time.process_time() - started)
        assert facts.data_files == 2_000 and facts.partitions is not None and len(facts.partitions) == 119
    assert min(seconds) < 2.5


@pytest.mark.parametrize("version", ["1", "2"])
def test_how_old_a_table_is_is_known_though_snapshots_have_expired(tmp_path: Path, version: str) -> None:
    began = datetime.now(UTC) - timedelta(seconds=1)
    with catalog_in(tmp_path) as catalog:
        made = catalog.create_table("orders.young", SCHEMA, properties={"format-version": version})
        for _ in range(3):
            append(made, [file_of(MB)])
        made.maintenance.expire_snapshots().by_id(made.snapshots()[0].snapshot_id).commit()
        facts = measure_health(catalog.load_table("orders.young"), policy(), datetime.now(UTC))
        assert facts.created_at is not None and began <= facts.created_at <= datetime.now(UTC)
        assert table_created_at(facts, MaintenanceHistory()) == facts.created_at
        # Where former metadata files have gone nothing tells any more, but what was noted before.
        with made.transaction() as change:
            change.set_properties({"write.metadata.previous-versions-max": "2"})
        append(made, [file_of(MB)])
        facts = measure_health(catalog.load_table("orders.young"), policy(), datetime.now(UTC))
        assert (facts.created_at, table_created_at(facts, MaintenanceHistory())) == (None, None)
        assert table_created_at(facts, MaintenanceHistory(created_at=began)) == began


def history(catalog: SqlCatalog, *commits: tuple[Operation, timedelta, int, int]) -> TableMetadata:
    """Metadata whose main has these commits, oldest first: operation, how long ago, files added, bytes of all."""
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": n,
                "parent-snapshot-id": n - 1,
                "sequence-number": n,
                "timestamp-ms": int((NOW - ago).timestamp() * 1000),
                "manifest-list": "none",
                "summary": Summary(operation, **{"added-data-files": str(files), "added-files-size": str(size)}),
            }
        )
        for n, (operation, ago, files, size) in enumerate(commits, start=1)
    ]
    main = SnapshotRef.model_validate({"snapshot-id": len(commits), "type": "branch"})
    return new_table(catalog).metadata.model_copy(update={"snapshots": snapshots, "refs": {"main": main}})


def test_growth_leaves_compaction_out(catalog: SqlCatalog) -> None:
    hours = timedelta(hours=1)
    metadata = history(
        catalog,
        (Operation.APPEND, 12 * hours, 1000, 1000 * MB),
        (Operation.APPEND, 8 * hours, 6, 6 * MB),
        (Operation.REPLACE, 6 * hours, 1, 1006 * MB),
        (Operation.APPEND, 4 * hours, 1, 100 * MB),
        (Operation.OVERWRITE, 2 * hours, 2, 14 * MB),
    )
    found = growth(metadata, NOW, 16 * MB)
    assert found.bytes_per_day == 240 * MB and found.files_per_day == 18 and found.commits_per_day == 8
    assert found.small_files == 1008


def test_two_commits_of_a_moment_say_nothing_of_a_day(catalog: SqlCatalog) -> None:
    second = timedelta(seconds=1)
    metadata = history(catalog, (Operation.APPEND, 2 * second, 1, MB), (Operation.APPEND, second, 1, MB))
    assert growth(metadata, NOW, 0).bytes_per_day == pytest.approx(24 * MB)


def test_what_is_beyond_a_gap_does_not_count(catalog: SqlCatalog) -> None:
    days = timedelta(days=1)
    metadata = history(catalog, *((Operation.APPEND, ago * days, 10, MB) for ago in (400, 3, 2, 1)))
    tagged = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id != 2]
    assert growth(metadata.model_copy(update={"snapshots": tagged}), NOW, 0).files_per_day == 5
    assert growth(metadata.model_copy(update={"snapshots": []}), NOW, 0) == Growth()
