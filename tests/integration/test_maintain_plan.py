"""A plan says what is then done, with the same numbers, and a run leaves nothing due: with Spark, on several tables.

`tests/unit/maintain/test_plan_always.py` and `test_plan_expiry.py` hold it of any table, as the procedures behave.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from jobs.catalog import connect_catalog
from jobs.maintain.plan import Step
from jobs.maintain.results import StepResult, TableResult
from jobs.maintain.table_context import TableContext
from jobs.maintain.table_metadata import rewrite_manifests
from jobs.spec.maintenance_policy import Policy
from tests.helpers.lake import NAME, Lake, spec_of
from tests.helpers.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

OLD: dict[str, Any] = {"expire": {"min_snapshots": 2, "keep": "1h"}, "compact": {"min_files": 2}}
YOUNG: dict[str, Any] = {"expire": {"min_snapshots": 2, "max_snapshots": 5}, "compact": {"min_files": 3}}


def of_days(home: Path) -> tuple[Lake, str]:
    """As many manifests as are well, before the compaction adds one."""
    lake = Lake(home)
    for _ in range(20):
        lake.land(rows=2)
    return lake, NAME


def held(home: Path) -> tuple[Lake, str]:
    """A tag on an old snapshot and a reader in the middle; the reader comes with the snapshots after it."""
    lake = Lake(home)
    for _ in range(8):
        lake.land(days=1, rows=1)
    table = lake.table()
    snapshots = table.snapshots()
    table.manage_snapshots().create_tag(snapshots[1].snapshot_id, "release").commit()
    with lake.table().transaction() as change:
        change.set_properties({"frazil.reader.dashboards": str(snapshots[5].snapshot_id)})
    return lake, NAME


def evolved(home: Path) -> tuple[Lake, str]:
    """Without partitions at first, by days since; small files of both."""
    lake = Lake(home, spec_of(()))
    for _ in range(6):
        lake.land(days=3, rows=2)
    with lake.table().update_spec() as update:
        update.add_field("created_at", "day", "created_at_day")
    for _ in range(5):
        lake.land(days=3, rows=2)
    return lake, NAME


def of_version_1(home: Path) -> tuple[Lake, str]:
    """Somebody else's, and of an old format."""
    lake = Lake(home)
    schema = Schema(NestedField(1, "id", LongType()))
    table = lake.catalog.create_table("lake.old", schema, properties={"format-version": "1"})
    for number in range(24):
        table.append(pa.table({"id": [number]}, schema=schema.as_arrow()))
    return lake, "lake.old"


@pytest.mark.parametrize(
    ("made", "policy", "days"), [(of_days, OLD, 3), (held, OLD, 3), (evolved, YOUNG, 0), (of_version_1, OLD, 3)]
)
def test_what_is_planned_is_done_and_nothing_is_due_after_it(
    tmp_path: Path, spark: SparkSession, made: Callable[[Path], tuple[Lake, str]], policy: dict[str, Any], days: int
) -> None:
    lake, name = made(tmp_path / "home")
    then = datetime.now(UTC) + timedelta(days=days)

    def maintain(**options: Any) -> TableResult:
        return lake.maintain(lambda: spark, policy, name=name, now=lambda: then, **options)

    rows = lake.table(name).scan(selected_fields=("id",)).to_arrow().sort_by("id")
    planned = maintain(dry_run=True).plan
    assert {"compact", "expire"} <= {step.action for step in planned.steps}
    done = maintain()
    assert done.errors == ()
    assert [(step.action, step.scope) for step in planned.steps] == [
        (each.step.action, each.step.scope) for each in done.done
    ]
    for step, each in zip(planned.steps, done.done, strict=True):
        assert each.done
        if step.action == "compact":
            assert (each.files_before, each.files_after) == (step.files_before, step.files_after)
            assert each.bytes == step.bytes
        elif step.action == "manifests":
            assert each.files_after == step.files_after
    assert done.after is not None
    assert maintain(dry_run=True).plan.steps == ()
    # A compaction is a snapshot, too; every other one that the plan let go is gone.
    (expiry,) = (step for step in planned.steps if step.action == "expire")
    gone = expiry.files_before - expiry.files_after
    (expired,) = (each for each in done.done if each.step.action == "expire")
    assert expired.files_before - expired.files_after >= gone > 0
    assert lake.table(name).scan(selected_fields=("id",)).to_arrow().sort_by("id").equals(rows)


class Merger(threading.Thread):
    """Appends, and merges all manifests at every fifth, as a stream does once it has a hundred."""

    def __init__(self, table: Table) -> None:
        super().__init__(name="merger", daemon=True)
        self.table: Table = table
        self.enough: threading.Event = threading.Event()
        self.commits: int = 0

    def run(self) -> None:
        row = pa.table({"id": [1]}, schema=self.table.schema().as_arrow())
        while not self.enough.wait(0.1):
            try:
                self.table.refresh().append(row)
                self.commits += 1
            except CommitFailedException:
                continue


def has_lost(result: StepResult) -> bool:
    return bool({"attempts", "lost"} & set(result.detail))


def test_manifests_lose_against_a_stream_that_merges_its_own_and_nothing_fails(
    tmp_path: Path, spark: SparkSession
) -> None:
    lake = Lake(tmp_path / "home")
    schema = Schema(NestedField(1, "id", LongType()))
    merging = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "5"}
    table = lake.catalog.create_table("lake.busy", schema, properties=merging)
    work = TableContext(lake.catalog, lake.settings, [], "lake.busy", Policy(), lambda: spark)
    work.procedures()
    merger = Merger(connect_catalog(lake.settings).load_table("lake.busy"))
    merger.start()
    try:
        wait_for(lambda: merger.commits > 2, "commits of the stream")
        results: list[StepResult] = []
        while len(results) < 10 and not any(map(has_lost, results)):
            # With the pauses of a real run it would wait for commits that come anyway.
            results.append(rewrite_manifests(work, Step("manifests", "", None, ""), longest_pause=0.2))
    finally:
        merger.enough.set()
        merger.join(60)
    assert {each.error for each in results} == {None}
    # It has lost at least once: otherwise nothing is shown.
    assert any(map(has_lost, results))
    assert table.refresh().scan().to_arrow().num_rows == merger.commits
