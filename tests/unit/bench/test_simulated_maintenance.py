"""What the bench does in Spark's place has to leave what Spark leaves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bench.simulated_maintenance import Maintenance
from bench.time_lapse import TimeLapse
from jobs.config.services.maintenance_policy import Policy

BEGIN = datetime(2026, 1, 31, 12, tzinfo=UTC)
POLICY = Policy.model_validate({"expire": {"max_snapshots": 12}})


@pytest.fixture
def lapse(tmp_path: Path) -> Iterator[TimeLapse]:
    made = TimeLapse(tmp_path, BEGIN, timedelta(minutes=1), tasks=2, bytes_per_minute=4 * 1024**2)
    with made.collecting():
        for _ in range(30):
            made.commit()
    made.timed(1)
    yield made
    made.close()


def test_collected_commits_are_those_of_the_stream(lapse: TimeLapse) -> None:
    snapshots = lapse.table.metadata.snapshots
    times = [datetime.fromtimestamp(each.timestamp_ms / 1000, UTC) for each in snapshots[1:]]
    assert times == [BEGIN + timedelta(minutes=n) for n in range(1, 32)]
    assert [each.parent_snapshot_id for each in snapshots[1:]] == [each.snapshot_id for each in snapshots[:-1]]
    newest = lapse.target.newest
    assert newest is not None
    assert newest.totals.landed == sum(task.file.record_count for task in lapse.table.scan().plan_files())


def test_a_run_merges_files_and_manifests_and_deletes_what_nothing_reaches(lapse: TimeLapse, tmp_path: Path) -> None:
    rows = sum(file.record_count for files in lapse.files.values() for file in files.values())
    maintenance = Maintenance(lapse, POLICY)
    assert [step.action for step in maintenance.run().steps] == ["compact", "manifests", "expire"]
    table = lapse.table
    assert len(table.metadata.snapshots) == 12
    found = [task.file for task in table.scan().plan_files()]
    assert {file.file_path for file in found} == {path for files in lapse.files.values() for path in files}
    # Of 31 commits three had a file of the day before, too few to be brought together.
    assert len(found) == 1 + 3
    assert sum(file.record_count for file in found) == pytest.approx(rows, rel=1e-4)
    reached = {Path(each.manifest_list.removeprefix("file://")) for each in table.metadata.snapshots}
    for snapshot in table.metadata.snapshots:
        reached |= {Path(each.manifest_path.removeprefix("file://")) for each in snapshot.manifests(table.io)}
    assert reached == {*Path(table.location().removeprefix("file://")).joinpath("metadata").glob("*.avro")}
    assert not [step for step in maintenance.run().steps if step.action in ("compact", "manifests")]
