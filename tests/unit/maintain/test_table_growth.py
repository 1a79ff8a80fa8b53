"""How fast a table grows, by the summaries of the snapshots that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from jobs.maintain.health_measurement import Growth, growth
from tests.unit.maintain.metadata_tables import MB, NOW, catalog_in, new_table


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    with catalog_in(tmp_path) as made:
        yield made


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
